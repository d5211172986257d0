// Ends of documents among tokens.
#include "formats/documents.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aisc {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string kText = "one two one two one two three three one two";

TEST(Documents, HaveTheEndOfTextBetweenThem) {
  const Tokenizer tokenizer = Tokenizer::train(kText, 260);
  const std::int32_t end = *tokenizer.end_of_text();
  const std::vector<std::int64_t> seams{7, 15};
  Ids expected;
  for (const auto& [begin, count] : {std::pair{0, 7}, std::pair{7, 8}, std::pair{15, 28}}) {
    if (begin > 0) expected.push_back(end);
    const Ids some = tokenizer.encode(
        kText.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
    expected.insert(expected.end(), some.begin(), some.end());
  }
  EXPECT_EQ(encode_documents(tokenizer, kText, seams), expected);
  EXPECT_EQ(encode_documents(tokenizer, kText, {}), tokenizer.encode(kText));
}

TEST(Documents, OfBytesHaveNoEnds) {
  const std::vector<std::int64_t> seams{7};
  EXPECT_EQ(encode_documents(Tokenizer::bytes(), kText, seams), Tokenizer::bytes().encode(kText));
}

TEST(Documents, ReadTheNameOfTheEndOnlyWhereAsked) {
  const Tokenizer tokenizer = Tokenizer::train(kText, 260);
  const std::int32_t end = *tokenizer.end_of_text();
  const std::string name(Tokenizer::kEndOfText);
  const std::string text = name + "one" + name + name + "two";
  EXPECT_EQ(encode_documents(tokenizer, text, {}), tokenizer.encode(text));
  Ids expected{end};
  const Ids one = tokenizer.encode("one"), two = tokenizer.encode("two");
  expected.insert(expected.end(), one.begin(), one.end());
  expected.insert(expected.end(), {end, end});
  expected.insert(expected.end(), two.begin(), two.end());
  EXPECT_EQ(encode_documents(tokenizer, text, {}, SpecialTokens::AreRead), expected);
  EXPECT_EQ(tokenizer.decode(expected), text);
}

}  // namespace
}  // namespace aisc
