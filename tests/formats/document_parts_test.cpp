// Texts that are cut for ranks: the parts' tokens behind one another are the whole's, wherever
// spaces, digits, apostrophes, characters of several bytes and broken ones stand.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/core/rng.h"
#include "common/core/system/files.h"
#include "formats/documents.h"
#include "formats/pretokenize.h"
#include "formats/word_counts.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

using Words = std::vector<std::string>;

Words cut_into_words(std::string_view text) {
  Words words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, first_word(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

// Pieces that join in every way: endings, spaces of one and of three bytes (U+3000), letters and
// signs of two and three, beginnings of characters without an end, ends without a beginning.
const std::vector<std::string> kPieces{" ",         "  ",
                                       "\n",        "\t",
                                       "a",         "re",
                                       "s",         "ll",
                                       "'",         "''",
                                       "'s",        "'re",
                                       "7",         "2026",
                                       ".",         "!?",
                                       "é",         "Ж",
                                       "中文",      "。",
                                       "€",         "½",
                                       "１",        "\u3000",
                                       "\u00a0",    "\xe3",
                                       "\x80",      "\xe3\x80",
                                       "\xf0\x9f",  "😀",
                                       "<|",        "|>",
                                       "endoftext", "<|endoftext|>",
                                       "the",       "word"};

std::string drawn_text(std::uint64_t text, std::uint64_t pieces) {
  const Philox random(7, "document parts", text);
  std::string all;
  for (std::uint64_t i = 0; i < pieces; ++i) all += kPieces[random.below(i, kPieces.size())];
  return all;
}

TEST(IsBorder, IsFalseWhereAWordGoesOn) {
  const std::string text = "it's 1: a";
  std::string found;
  for (std::size_t at = 0; at <= text.size(); ++at) found += is_border(text, at) ? '|' : '.';
  EXPECT_EQ(found, "|.|.|.||.|");
}

TEST(IsBorder, NeverChangesAWord) {
  std::int64_t borders = 0;
  for (std::uint64_t n = 0; n < 3000; ++n) {
    const std::string text = drawn_text(n, 1 + n % 12);
    const Words whole = cut_into_words(text);
    for (std::size_t at = 0; at <= text.size(); ++at) {
      if (!is_border(text, at)) continue;
      ++borders;
      Words parts = cut_into_words(text.substr(0, at));
      const Words behind = cut_into_words(text.substr(at));
      parts.insert(parts.end(), behind.begin(), behind.end());
      ASSERT_EQ(parts, whole) << "text " << n << ", cut at byte " << at;
    }
  }
  EXPECT_GT(borders, 10'000);
}

TEST(WordCounts, OfPartsAreThoseOfTheWhole) {
  for (std::uint64_t n = 0; n < 200; ++n) {
    const std::string text = drawn_text(n, 100);
    std::vector<std::vector<WordCount>> parts;
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      do ++end;
      while (end < text.size() && (end % 10 > 3 || !is_border(text, end)));
      parts.push_back(count_words(std::string_view(text).substr(begin, end - begin)));
    }
    const std::vector<WordCount> whole = count_words(text), merged = merge_counts(parts);
    ASSERT_EQ(merged.size(), whole.size());
    std::map<std::string, std::int64_t> plain;
    for (const std::string& word : cut_into_words(text)) ++plain[word];
    EXPECT_EQ(plain.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(merged[i].word, whole[i].word);
      EXPECT_EQ(merged[i].count, whole[i].count);
      EXPECT_EQ(merged[i].count, plain[std::string(whole[i].word)]);
    }
  }
}

// Seams anywhere, in characters, too, and several at one place.
std::vector<std::int64_t> drawn_seams(std::uint64_t text, std::size_t bytes, std::uint64_t count) {
  const Philox random(8, "seams", text);
  std::vector<std::int64_t> seams;
  for (std::uint64_t i = 0; i < count; ++i)
    seams.push_back(static_cast<std::int64_t>(random.below(i, bytes + 1)));
  std::sort(seams.begin(), seams.end());
  return seams;
}

void expect_parts_are_the_whole(const Tokenizer& tokenizer, const std::string& text,
                                const std::vector<std::int64_t>& seams) {
  for (const SpecialTokens special : {SpecialTokens::AreText, SpecialTokens::AreRead}) {
    const auto whole = encode_documents(tokenizer, text, seams, special);
    for (const std::int64_t count : {1, 2, 3, 8, 40}) {
      const auto parts = divide_documents(tokenizer, text, seams, special, count);
      ASSERT_EQ(std::ssize(parts), count);
      std::vector<std::int32_t> all;
      std::int64_t end = 0;
      for (const DocumentPart& part : parts) {
        EXPECT_EQ(part.bytes.begin, end);
        end = part.bytes.end;
        const auto some = encode_part(tokenizer, text, seams, special, part);
        all.insert(all.end(), some.begin(), some.end());
      }
      EXPECT_EQ(end, std::ssize(text));
      ASSERT_EQ(all, whole) << count << " parts of " << testing::PrintToString(text);
    }
  }
}

TEST(DocumentParts, AreTheWhole) {
  const Tokenizer tokenizer = Tokenizer::train(drawn_text(1'000'000, 20'000), 400);
  for (std::uint64_t n = 0; n < 600; ++n) {
    const std::string text = drawn_text(n, n % 60);
    for (const Tokenizer& some : {tokenizer, Tokenizer::bytes()})
      expect_parts_are_the_whole(some, text, drawn_seams(n, text.size(), n % 5));
  }
}

// Without an end of text there is nothing between documents, and words go on across their seams.
TEST(DocumentParts, OfATokenizerWithoutAnEndAreTheWhole) {
  const TemporaryFolder folder;
  Tokenizer::train(drawn_text(1'000'000, 20'000), 400).write(folder.path());
  std::string vocab = read_file(folder.path("vocab.json"));
  const std::size_t last = vocab.find(",\n\"<|endoftext|>\": 399");
  ASSERT_NE(last, std::string::npos);
  vocab.erase(last, vocab.find('}', last) - last);
  const Tokenizer tokenizer =
      Tokenizer::from_vocab_and_merges(vocab, read_file(folder.path("merges.txt")));
  ASSERT_FALSE(tokenizer.end_of_text());
  for (std::uint64_t n = 0; n < 100; ++n) {
    const std::string text = drawn_text(n, 60);
    expect_parts_are_the_whole(tokenizer, text, drawn_seams(n, text.size(), 30));
  }
}

// One document, which is longer than a part: it is cut inside, and evenly.
TEST(DocumentParts, OfOneLongDocumentAreEven) {
  const Tokenizer tokenizer = Tokenizer::train("low lower lowest low low", 262);
  std::string text;
  while (text.size() < 80'000) text += "low lower lowest ";
  expect_parts_are_the_whole(tokenizer, text, {});
  for (const DocumentPart& part : divide_documents(tokenizer, text, {}, SpecialTokens::AreText, 8))
    EXPECT_NEAR(static_cast<double>(part.bytes.count()), 10'000, 10);
}

TEST(DocumentParts, OfOneEndlessWordAreOne) {
  const std::string text(1000, 'x');
  const auto parts = divide_documents(Tokenizer::bytes(), text, {}, SpecialTokens::AreText, 3);
  EXPECT_EQ(parts[0].bytes, (Range{0, 1000}));
  EXPECT_EQ(parts[1].bytes, (Range{1000, 1000}));
  EXPECT_EQ(parts[2].bytes, (Range{1000, 1000}));
}

}  // namespace
}  // namespace aisc
