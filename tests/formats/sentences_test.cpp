// Where sentences end, and which follow one another.
#include "formats/sentences.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/some_documents.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SplitSentences, EndWithAStopBeforeACapital) {
  EXPECT_THAT(split_sentences("One is one. Two is 2.5, i.e. more! Is it? Yes."),
              ElementsAre("One is one.", "Two is 2.5, i.e. more!", "Is it?", "Yes."));
  EXPECT_THAT(split_sentences("It says \"Stop.\" (So it did.) *Then* it went. `x` is on."),
              ElementsAre("It says \"Stop.\"", "(So it did.)", "*Then* it went. `x` is on."));
  EXPECT_THAT(split_sentences("No end"), ElementsAre("No end"));
  EXPECT_THAT(split_sentences(""), IsEmpty());
  EXPECT_THAT(split_sentences("\n \n... ?\n"), IsEmpty()) << "neither letter nor digit";
}

TEST(SplitSentences, GoOnInTheNextLine) {
  EXPECT_THAT(split_sentences("A sentence\n  goes on. Another\nends.\nnew line\n\nnew paragraph\n"),
              ElementsAre("A sentence\n  goes on.", "Another\nends.", "new line", "new paragraph"));
}

TEST(SplitSentences, ListsHeadingsAndTablesStandAlone) {
  EXPECT_THAT(
      split_sentences("# The idea\nText before\n- first item,\n  which goes on\n"
                      "* second. Third\n12. last\n## Next\n| a | b |\n|---|---|\n| 1 | 2 |\n"
                      "> quoted text\n> goes on\n"),
      ElementsAre("The idea", "Text before", "first item,\n  which goes on", "second.", "Third",
                  "last", "Next", "| a | b |", "| 1 | 2 |", "quoted text\n> goes on"));
}

TEST(SplitSentences, CodeAndTagsAreLeftOut) {
  EXPECT_THAT(split_sentences("Run this:\n```\nint x = 0. Y\n```\nThen that.\n"
                              "<details><summary>More</summary>\n\nDone.\n</details>\n"),
              ElementsAre("Run this:", "Then that.", "Done."));
}

TEST(SplitSentences, AreViewsOfTheText) {
  const std::string text = "One. Two\nis long.";
  for (const std::string_view sentence : split_sentences(text)) {
    EXPECT_GE(sentence.data(), text.data());
    EXPECT_LE(sentence.data() + sentence.size(), text.data() + text.size());
  }
}

TEST(DocumentsGiven, NumberSentencesAndNeighbours) {
  const Documents documents(two_documents(), counted_tokens);
  EXPECT_EQ(documents.count(), 2);
  EXPECT_EQ(documents.sentences(), 9);
  EXPECT_EQ(documents.largest_token(), 313);
  EXPECT_THAT(documents.tokens({1, 3}), ElementsAre(104, 105, 106, 107, 108, 109, 110, 111));
  EXPECT_EQ(documents.token_count({0, 4}), 18);
  EXPECT_EQ(documents.stretch(0), (Range{0, 4}));
  EXPECT_EQ(documents.stretch(3), (Range{0, 4}));
  EXPECT_EQ(documents.stretch(4), (Range{4, 6}));
  EXPECT_EQ(documents.stretch(8), (Range{6, 9}));
  std::vector<std::int64_t> firsts;
  for (std::int64_t i = 0; i < documents.neighbours(); ++i)
    firsts.push_back(documents.neighbour(i));
  EXPECT_THAT(firsts, ElementsAre(0, 1, 2, 4, 6, 7)) << "3, 5 and 8 are the last of a stretch";
  EXPECT_EQ(documents.neighbours_elsewhere(0), 2);
  EXPECT_EQ(documents.neighbours_elsewhere(5), 2) << "another stretch, but the same document";
  EXPECT_EQ(documents.neighbour_elsewhere(5, 0), 6);
  EXPECT_EQ(documents.neighbour_elsewhere(5, 1), 7);
  ASSERT_EQ(documents.neighbours_elsewhere(7), 4);
  EXPECT_EQ(documents.neighbour_elsewhere(7, 3), 4);
}

TEST(DocumentsGiven, WhatMakesNoPairIsLeftOut) {
  std::vector<Document> texts = two_documents();
  texts.insert(texts.begin(), Document{});
  texts.insert(texts.begin() + 2, {{counted_sentence(900, 3)}, {}});
  texts[1].insert(texts[1].begin(), Stretch{counted_sentence(950, 2), counted_sentence(960, 0)});
  texts[1][1].insert(texts[1][1].begin(), counted_sentence(970, 0));
  const Documents documents(texts, counted_tokens);
  EXPECT_EQ(documents.count(), 2);
  EXPECT_EQ(documents.sentences(), 9);
  EXPECT_EQ(documents.largest_token(), 313);
  EXPECT_EQ(documents.neighbours_elsewhere(0), 2);
}

TEST(DocumentsGiven, NeedTwoDocumentsWithAPair) {
  const auto says = [](const std::vector<Document>& texts,
                       const std::vector<std::string>& fragments) {
    return error_says([&] { Documents(texts, counted_tokens); }, fragments);
  };
  EXPECT_TRUE(says({}, {"found 0 documents", "expected 2"}));
  EXPECT_TRUE(says({two_documents()[0]}, {"found 1 documents, 1 of them", "expected 2"}));
  EXPECT_TRUE(says({two_documents()[0], {{counted_sentence(1, 3)}}, {{}}},
                   {"found 3 documents, 1 of them", "follow one another"}));
}

// A text whose sentences say with which byte they begin.
std::string numbered_text(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes)
    text += "Sentence " + std::to_string(text.size()) + " has some words in it.\n";
  text.resize(bytes);
  return text;
}

std::span<const std::uint8_t> text_bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::int64_t first_byte(const std::string& sentence) {
  return std::stoll(sentence.substr(std::string("Sentence ").size()));
}

// 25 blocks and a little: blocks 9 and 19 are held out.
void expect_parts_of_blocks(std::int64_t block) {
  SCOPED_TRACE(fmt::format("blocks of {} bytes", block));
  std::string text = numbered_text(static_cast<std::size_t>(25 * block + 77));
  text.resize(text.rfind('\n') + 1);  // whole sentences
  const DocumentParts parts = documents_of(split_text(text_bytes(text), {}, block));
  ASSERT_EQ(parts.training.size(), 1u);
  ASSERT_EQ(parts.held_out.size(), 1u);
  EXPECT_EQ(parts.training[0].size(), 3u) << "blocks 0-8, 10-18, 20-25";
  EXPECT_EQ(parts.held_out[0].size(), 2u);
  std::size_t found = 0;
  for (const auto* part : {&parts.training, &parts.held_out})
    for (const Stretch& stretch : (*part)[0]) {
      std::int64_t next = first_byte(stretch.front());
      for (const std::string& sentence : stretch) {
        ++found;
        EXPECT_EQ(first_byte(sentence), next) << "it follows the one before";
        next += std::ssize(sentence) + 1;
        for (const std::int64_t byte : {first_byte(sentence), next - 2})
          EXPECT_EQ(byte / block % 10 == 9, part == &parts.held_out) << sentence;
      }
    }
  EXPECT_EQ(found, split_sentences(text).size() - 4) << "one is cut at each of four borders";
}

TEST(DocumentsOf, SentencesAreOfOnePartAndFollowOneAnother) {
  for (const std::int64_t block : {1024, 500, 4096}) expect_parts_of_blocks(block);
}

TEST(DocumentsOf, FilesBeginBehindTheirPaths) {
  const std::string a = "// ==== a.md ====\nIn a. Still in a.\n", b = "// ==== b.md ====\nIn b.\n";
  const std::string c = "In c. It is\nlong. " + numbered_text(300);
  const std::string text = a + b + c;
  const std::vector<std::int64_t> seams = {std::ssize(a), std::ssize(a + b)};
  const DocumentParts parts = documents_of(split_text(text_bytes(text), seams));
  ASSERT_EQ(parts.training.size(), 3u);
  EXPECT_THAT(parts.training[0], ElementsAre(Stretch{"In a.", "Still in a."}));
  EXPECT_THAT(parts.training[1], ElementsAre(Stretch{"In b."}));
  EXPECT_EQ(parts.training[2][0][1], "It is\nlong.");
  ASSERT_EQ(parts.held_out.size(), 1u) << "the last tenth of a short text";
  EXPECT_EQ(parts.held_out[0].size(), 1u);
}

// Of two parts, the second of which the text does not reach, and of files that begin where blocks
// do.
TEST(DocumentsOf, BordersOfFilesAndBlocksMayFallTogether) {
  for (const std::size_t size : {std::size_t{9216}, std::size_t{10240}, std::size_t{10241}}) {
    const std::string text = numbered_text(9216) + numbered_text(size - 9216);
    const std::vector<std::int64_t> seams = {9216};
    const bool has_two = size > 9216;
    const Corpus corpus =
        split_text(text_bytes(text), has_two ? std::span<const std::int64_t>(seams)
                                             : std::span<const std::int64_t>());
    const DocumentParts parts = documents_of(corpus);
    if (size >= 10240) {
      ASSERT_EQ(parts.held_out.size(), 1u) << size;
      EXPECT_EQ(first_byte(parts.held_out[0][0][0]), 0) << "the second file begins with the block";
    }
    EXPECT_EQ(parts.training[0].size(), 1u);
  }
}

TEST(DocumentsOf, TheCoursesProse) {
  const Corpus corpus = read_corpus(".", course_prose());  // tests run in the course's folder
  const DocumentParts parts = documents_of(corpus);
  EXPECT_EQ(std::ssize(parts.training), corpus.files);
  EXPECT_GE(parts.held_out.size(), 2u);
  PlainWordIds ids;
  const auto encode = [&](std::string_view text) { return ids(text); };
  const Documents training(parts.training, encode), held_out(parts.held_out, encode);
  EXPECT_GT(training.sentences(), 1000);
  EXPECT_GT(held_out.neighbours(), 100);
  // Sentences as people write them: on the average some ten to thirty words.
  const double mean = static_cast<double>(training.token_count({0, training.sentences()})) /
                      static_cast<double>(training.sentences());
  EXPECT_GT(mean, 10);
  EXPECT_LT(mean, 40);
}

}  // namespace
}  // namespace aisc
