// Which bytes become the corpus, in which order, how they are split, and what is said when there
// are none.
#include "common/data/corpus.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>

#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

std::vector<std::uint8_t> as_bytes(const std::string& s) { return {s.begin(), s.end()}; }

// The whole text of a corpus of less than 10 KiB, whose last tenth is for validation.
std::string whole_text(const Corpus& corpus) {
  std::string text(corpus.training.begin(), corpus.training.end());
  return text.append(corpus.validation.begin(), corpus.validation.end());
}

class CorpusTest : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    write_file(path.string(), bytes);
    return path.string();
  }
  std::string text() const { return whole_text(read_corpus(folder_.string())); }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

// Alone and in a folder: the same bytes, or the same reason.
TEST_F(CorpusTest, AFileIsTakenByteForByteOrNotAtAll) {
  const std::string cut("caf\xc3"), latin("latin \xe9"), plain("plain");
  for (const std::string& bytes : {cut, latin, plain}) {
    const std::string path = put("folder/data.txt", bytes);
    EXPECT_EQ(whole_text(read_corpus(path)), bytes);
    EXPECT_EQ(whole_text(read_corpus((folder_ / "folder").string())),
              "// ==== data.txt ====\n" + bytes + "\n");
  }
  const std::string zero("zero \0 byte", 11), wide("\xff\xfe\x61\x62");
  for (const auto& [bytes, why] : {std::pair{zero, "a NUL at byte 5"}, std::pair{wide, "UTF-16"},
                                   std::pair{std::string(), "empty"}}) {
    const std::string path = put("folder/data.txt", bytes);
    EXPECT_TRUE(error_says([&] { read_corpus(path); }, {path + ": " + why}));
    EXPECT_TRUE(error_says([&] { read_corpus((folder_ / "folder").string()); },
                           {std::string("data.txt: ") + why}));
  }
}

TEST_F(CorpusTest, FilesComeInTheOrderOfTheirPathsEachUnderItsName) {
  put("b.txt", "second\n");
  put("a/z.md", "no newline at its end");
  put("B.txt", "capitals come first\n");
  put("a.md", "a dot is smaller than a slash\n");
  const std::string expected =
      "// ==== B.txt ====\ncapitals come first\n"
      "// ==== a.md ====\na dot is smaller than a slash\n"
      "// ==== a/z.md ====\nno newline at its end\n"
      "// ==== b.txt ====\nsecond\n";
  EXPECT_EQ(text(), expected);
  EXPECT_EQ(whole_text(read_corpus(folder_.string() + "/")), expected);
}

TEST_F(CorpusTest, FoldersBuildAndRunsAreLeftOutAnywhere) {
  put("kept.txt", "kept\n");
  for (const char* name : {".hidden", ".git/config", "sub/build/a.txt", "sub/runs/1/metrics.txt"})
    put(name, "left out\n");
  put("sub/runs.txt", "a file may be called so\n");
  EXPECT_EQ(text(),
            "// ==== kept.txt ====\nkept\n// ==== sub/runs.txt ====\na file may be called so\n");
}

TEST_F(CorpusTest, WhatIsLeftOutIsCountedAndNamedWithTheReason) {
  put("a.txt", "kept\n");
  EXPECT_EQ(left_out_remark(read_corpus(folder_.string())), "");
  put("b.txt", std::string("zero \0 byte", 11));
  EXPECT_EQ(left_out_remark(read_corpus(folder_.string())),
            "1 file is left out, being no text: b.txt: a NUL at byte 5");
  put("c.txt", std::string("\xfe\xff\0a", 4));
  put("d.txt", std::string(101, 'x'));
  put("e.txt", "");
  fs::create_symlink(folder_ / "nowhere", folder_ / "f");
  const Corpus corpus = read_corpus(folder_.string(), {.largest_file_bytes = 100});
  EXPECT_EQ(corpus.files, 1);
  EXPECT_EQ(corpus.skipped, 0);
  EXPECT_EQ(corpus.left_out,
            (std::vector<std::string>{
                "b.txt: a NUL at byte 5", "c.txt: UTF-16 (iconv -f UTF-16 -t UTF-8 changes it)",
                "d.txt: 101 bytes, more than 100", "e.txt: empty", "f: not a file"}));
  EXPECT_TRUE(left_out_remark(corpus).starts_with("5 files are left out, being no text: b.txt:"));
  EXPECT_TRUE(left_out_remark(corpus).ends_with("101 bytes, more than 100; ..."));
}

TEST_F(CorpusTest, TheCoursesProseIsHandoutsAndDocuments) {
  for (const char* name : {"01_sum/README.md", "README.md", "docs/design.md"}) put(name, "kept\n");
  for (const char* name : {"a.cpp", "a.h", "lab.toml", "plot.py", "figure.svg", "a.md.orig"})
    put(name, "not\n");
  const Corpus corpus = read_corpus(folder_.string(), course_prose());
  EXPECT_EQ(corpus.files, 3);
  EXPECT_EQ(corpus.skipped, 6);
  EXPECT_EQ(whole_text(corpus),
            "// ==== 01_sum/README.md ====\nkept\n"
            "// ==== README.md ====\nkept\n"
            "// ==== docs/design.md ====\nkept\n");
}

TEST_F(CorpusTest, CirclesOfLinksEnd) {
  put("sub/a.txt", "text\n");
  fs::create_directory_symlink(folder_, folder_ / "sub/up");
  fs::create_symlink(folder_ / "self", folder_ / "self");
  fs::create_symlink(folder_ / "nowhere", folder_ / "dangling");
  fs::create_symlink(folder_ / "sub/a.txt", folder_ / "link.txt");
  EXPECT_EQ(text(), "// ==== link.txt ====\ntext\n// ==== sub/a.txt ====\ntext\n");
  fs::create_directory_symlink(folder_ / "sub", folder_ / "linked");
  EXPECT_EQ(whole_text(read_corpus((folder_ / "linked").string())), "// ==== a.txt ====\ntext\n");
}

TEST_F(CorpusTest, AnErrorNamesThePathWhatWasFoundAndWhatIsExpected) {
  EXPECT_EQ(message_of([&] { read_corpus("/no/such/path"); }),
            "corpus /no/such/path: does not exist, expected a text file or a folder");
  const std::string empty = put("empty", "");
  EXPECT_EQ(message_of([&] { read_corpus(empty); }), "corpus " + empty + ": empty, expected text");
  EXPECT_EQ(message_of([&] { read_corpus(folder_.string()); }),
            "corpus " + folder_.string() +
                ": the folder holds no text file: found 0 with other names; 1 file is left out, "
                "being no text: empty: empty");
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message_of([&] { read_corpus(pipe); }),
            "corpus " + pipe + ": is neither a file nor a folder");
}

TEST_F(CorpusTest, AnErrorNamesWhatCannotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  const std::string file = put("sub/secret.txt", "text\n");
  fs::permissions(file, fs::perms::none);
  const auto read = [&] { read_corpus(folder_.string()); };
  EXPECT_TRUE(error_says(read, {"secret.txt: cannot be opened"}));
  fs::permissions(folder_ / "sub", fs::perms::none);
  EXPECT_TRUE(error_says(read, {"sub cannot be read: Permission denied"}));
  fs::permissions(folder_ / "sub", fs::perms::owner_all);
}

TEST(SplitText, TakesTheLastTenthOfAShortText) {
  std::vector<std::uint8_t> text(105);
  std::iota(text.begin(), text.end(), std::uint8_t{0});
  const Corpus corpus = split_text(text);
  EXPECT_EQ(corpus.validation,
            (std::vector<std::uint8_t>{95, 96, 97, 98, 99, 100, 101, 102, 103, 104}));
  EXPECT_EQ(corpus.training.size(), 95U);
  EXPECT_EQ(corpus.training.back(), 94);
  EXPECT_TRUE(split_text({}).training.empty());
  EXPECT_EQ(split_text(as_bytes("abc")).training, as_bytes("abc"));
}

TEST(SplitText, GivesEveryTenthBlockOf1KiBToValidation) {
  std::vector<std::uint8_t> text(25 * 1024 + 100);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i / 1024);
  const Corpus corpus = split_text(text);
  ASSERT_EQ(corpus.validation.size(), 2U * 1024);  // blocks 9 and 19
  ASSERT_EQ(corpus.training.size(), 23U * 1024 + 100);
  EXPECT_EQ(std::count(corpus.validation.begin(), corpus.validation.end(), 9), 1024);
  EXPECT_EQ(std::count(corpus.validation.begin(), corpus.validation.end(), 19), 1024);
  EXPECT_EQ(corpus.training[9 * 1024 - 1], 8);
  EXPECT_EQ(corpus.training[9 * 1024], 10);
  EXPECT_EQ(corpus.training.back(), 25);
}

TEST(SplitText, CutsBlocksFrom10KiBOn) {
  const std::vector<std::uint8_t> text(10 * 1024, 'x');
  EXPECT_EQ(split_text(text).validation.size(), 1024U);
  EXPECT_EQ(split_text({text.data(), text.size() - 1}).validation.size(), 1023U);
}

TEST(SplitText, CutsBlocksOfOtherSizes) {
  std::vector<std::uint8_t> text(30 * 7 + 3);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i / 7);
  const Corpus corpus = split_text(text, {}, 7);
  EXPECT_EQ(corpus.block_bytes, 7);
  ASSERT_EQ(corpus.validation.size(), 3U * 7);
  for (std::size_t i = 0; i < 21; ++i) EXPECT_EQ(corpus.validation[i], 9 + 10 * (i / 7)) << i;
  EXPECT_EQ(corpus.training.size(), 27U * 7 + 3);
  EXPECT_EQ(split_text({text.data(), 69}, {}, 7).validation.size(), 6U) << "the last tenth";
  EXPECT_EQ(split_text({text.data(), 70}, {}, 7).validation.size(), 7U) << "block 9";
  EXPECT_TRUE(error_says([&] { split_text(text, {}, 0); },
                         {"corpus: blocks of 0 bytes, expected 1 or more"}));
}

TEST(SplitText, HashIsFnv1a) {
  EXPECT_EQ(split_text(as_bytes("a")).hash, 0xe6c632b61e964e1fu);  // the published value
}

// Seams lie where the byte before them lies, whichever part that is.
TEST(SplitText, KeepsWhereFilesBegin) {
  std::vector<std::uint8_t> text(20 * 1024);
  const std::int64_t kBlock = 1024;
  const std::vector<std::int64_t> seams{1,           9 * kBlock,      9 * kBlock + 1,
                                        10 * kBlock, 10 * kBlock + 5, 20 * kBlock - 1};
  const Corpus corpus = split_text(text, seams);
  EXPECT_EQ(corpus.training_seams, (std::vector<std::int64_t>{1, 9 * kBlock, 9 * kBlock + 5}));
  EXPECT_EQ(corpus.validation_seams, (std::vector<std::int64_t>{1, kBlock, 2 * kBlock - 1}));
  const std::vector<std::int64_t> of_few{95, 96};
  const Corpus few = split_text({text.data(), 105}, of_few);
  EXPECT_EQ(few.training_seams, std::vector<std::int64_t>{95});
  EXPECT_EQ(few.validation_seams, std::vector<std::int64_t>{1});
}

}  // namespace
}  // namespace aisc
