// A person's settings know their lines.
#include "app/settings_file.h"

#include <gtest/gtest.h>

#include <string>

#include "common/core/error.h"
#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

class SettingsFileTest : public testing::Test {
 protected:
  SettingsFile file(const std::string& text) {
    write_file(path_, text);
    return SettingsFile(path_);
  }
  // What is said of `text`, behind the file's name.
  std::string refusal(const std::string& text) {
    try {
      file(text);
    } catch (const Error& e) {
      return std::string(e.what()).substr(path_.size());
    }
    return "";
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/s.json";
};

TEST_F(SettingsFileTest, EachIsFoundByItsKeysAndKnowsItsLine) {
  SettingsFile f =
      file("{\n  \"a\": 1,\n  \"b\": {\"c\": true,\n\n    \"d\": [0.5, \"x\"]},\n\"e\": {}}");
  const auto left = f.left();
  ASSERT_EQ(left.size(), 4u) << "in the file's order";
  EXPECT_EQ(left[2].key, "b.d");
  EXPECT_EQ(f.take("a")->line, 2);
  EXPECT_EQ(f.take("b.c")->line, 3);
  EXPECT_EQ(f.take("b.d")->value.dump(), "[0.5,\"x\"]");
  EXPECT_EQ(f.take_first_of({"b.d", "e"})->line, 6) << "what was taken is gone";
  EXPECT_FALSE(f.take("a"));
  EXPECT_TRUE(f.left().empty());
}

TEST_F(SettingsFileTest, AKeyIsOnItsOwnLineWhereverItsValueEnds) {
  SettingsFile f = file("{\n\"a\"\n:\n1\n,\n\"b\":2\n}\n");
  EXPECT_EQ(f.take("a")->line, 2);
  EXPECT_EQ(f.take("b")->line, 6);
}

TEST_F(SettingsFileTest, WhatIsNoneIsRefusedWithItsLine) {
  EXPECT_TRUE(refusal("{\n\"a\": 1,\n}").starts_with(":3: not JSON")) << refusal("{\n\"a\": 1,\n}");
  EXPECT_EQ(refusal("{\"a\": 1,\n\"b\": {\"a\": 1,\n \"a\": 2}}"),
            ":3: \"a\" stands twice, first in line 2");
  EXPECT_EQ(refusal("[1]"), ":1: expected an object: { ... }");
  EXPECT_EQ(refusal("3"), ":1: expected an object: { ... }");
  EXPECT_NE(refusal(""), "");
  std::string deep;
  for (int i = 0; i < 9; ++i) deep += "{\"a\":\n";
  EXPECT_EQ(refusal(deep), ":9: nested deeper than 8 objects");
  EXPECT_NE(refusal(std::string(100'000, '[')), "") << "of lists neither";
}

TEST_F(SettingsFileTest, AValueIsOfTheKindThatIsAskedFor) {
  SettingsFile f = file(R"({"whole": 1e9, "half": 0.5, "word": "CPU", "yes": true, "none": null})");
  const Setting whole = *f.take("whole"), half = *f.take("half"), word = *f.take("word");
  EXPECT_EQ(whole.whole(1), 1'000'000'000);
  EXPECT_EQ(half.real(0), .5);
  EXPECT_EQ(word.one_of({"none", "cpu"}), "cpu");
  EXPECT_TRUE(f.take("yes")->on());
  const std::string place = path_ + ":1: ";
  EXPECT_TRUE(error_says([&] { half.whole(0); },
                         {place + "half: found 0.5, expected a whole number, 0 or more"}));
  EXPECT_TRUE(
      error_says([&] { whole.whole(2'000'000'000); }, {"expected a whole number, 2000000000"}));
  EXPECT_TRUE(
      error_says([&] { word.real(0); }, {place + "word: found \"CPU\", expected a number"}));
  EXPECT_TRUE(error_says([&] { whole.on(); }, {"expected true or false"}));
  EXPECT_TRUE(error_says([&] { whole.text(); }, {"expected a text"}));
  EXPECT_TRUE(error_says([&] { word.one_of({"a", "b"}); }, {"expected \"a\" or \"b\""}));
  EXPECT_TRUE(error_says([&] { f.take("none")->real(0); }, {"found null"}));
}

}  // namespace
}  // namespace aisc
