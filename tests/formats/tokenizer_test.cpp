// How text is cut into words, which merges are learnt, which ids a text becomes, and that every
// string of bytes comes back. Files are tested in tokenizer_files_test.cpp.
#include "formats/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "formats/pretokenize.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Ids = std::vector<std::int32_t>;
using Words = std::vector<std::string>;

Words words_of(std::string_view text) {
  Words words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, first_word(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

// The tokens of a text, as their bytes.
Words pieces_of(const Tokenizer& tokenizer, std::string_view text) {
  Words pieces;
  for (const std::int32_t id : tokenizer.encode(text)) pieces.push_back(tokenizer.bytes_of(id));
  return pieces;
}

std::string between_dots(const std::string& s) {
  std::string all = ".";
  return all.append(s).append(".");
}

std::string random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// 256 bytes, then the tokens 256 .. 260 in this order: "lo", "low", " low", " lowe", "st"; worked
// out by hand below.
Tokenizer low_lower_lowest() { return Tokenizer::train("low lower lowest low low", 262); }

TEST(FirstWord, TakesOneSpaceAlong) {
  EXPECT_EQ(words_of("to be, 2 b"), (Words{"to", " be", ",", " 2", " b"}));
  EXPECT_EQ(words_of("x1+ +y"), (Words{"x", "1", "+", " +", "y"}));
}

TEST(FirstWord, LeavesTheLastSpaceToTheNextWord) {
  EXPECT_EQ(words_of("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(words_of("a\n\tb"), (Words{"a", "\n", "\t", "b"}));
  EXPECT_EQ(words_of("a  \n"), (Words{"a", "  \n"}));
  EXPECT_EQ(words_of(" "), (Words{" "}));
  EXPECT_EQ(words_of("\t "), (Words{"\t "}));
}

TEST(FirstWord, CutsEnglishEndings) {
  EXPECT_EQ(words_of("it's we're I'd"), (Words{"it", "'s", " we", "'re", " I", "'d"}));
  EXPECT_EQ(words_of("'tis 'v 'l"), (Words{"'t", "is", " '", "v", " '", "l"}));
  EXPECT_EQ(words_of("'llama've'm't"), (Words{"'ll", "ama", "'ve", "'m", "'t"}));
  EXPECT_EQ(words_of("IT'S ''s"), (Words{"IT", "'", "S", " ''", "s"}));
  EXPECT_EQ(words_of("'"), (Words{"'"}));
}

TEST(FirstWord, KnowsLettersNumbersAndSpacesOfAllScripts) {
  EXPECT_EQ(words_of("Größe мир漢字"), (Words{"Größe", " мир漢字"}));
  EXPECT_EQ(words_of("x½Ⅷ²١"), (Words{"x", "½Ⅷ²١"}));
  EXPECT_EQ(words_of("e\u0301"), (Words{"e", "\u0301"}));  // a mark is no letter
  for (const char* space : {"\u00a0", "\u0085", "\u1680", "\u2000", "\u2028", "\u2029", "\u3000"})
    EXPECT_EQ(words_of(between_dots(space)), (Words{".", space, "."}));
  for (const char* sign : {"\u200b", "\ufeff", "\u180e", "\x1c", "\U0001f52c"})
    EXPECT_EQ(words_of(between_dots(sign)), Words{between_dots(sign)});
}

TEST(FirstWord, TakesInvalidUtf8ForSigns) {
  // A lone continuation, an overlong slash, a surrogate, a sequence cut short by the end.
  for (const char* bytes : {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xe6\xbc", "\xf5\x80\x80\x80"}) {
    EXPECT_EQ(words_of(std::string("a").append(bytes)), (Words{"a", bytes}));
    EXPECT_EQ(words_of(between_dots(bytes) + "a"), (Words{between_dots(bytes), "a"}));
  }
}

TEST(Tokenizer, BytesAreTheirOwnIds) {
  const Tokenizer bytes = Tokenizer::bytes();
  EXPECT_EQ(bytes.vocabulary(), 256);
  EXPECT_EQ(bytes.encode("A\xff "), (Ids{65, 255, 32}));
  EXPECT_EQ(bytes.end_of_text(), std::nullopt);
}

// The words: "low" once, " lower" once, " lowest" once, " low" twice. Ids of bytes are GPT-2's:
// e < l < o < r < s < t < w < " ". All five have (l o) and (o w): (l o) has the smaller left id.
// Then (lo w), 5 times; then (" " low), 4; then (" low" e), 2; of the pairs that remain, (" lowe"
// r),
// (" lowe" s) and (s t), once each, the one whose left id is smallest.
TEST(Tokenizer, LearnsTheMostFrequentPairFirst) {
  const Tokenizer tokenizer = low_lower_lowest();
  Words learnt;
  for (std::int32_t id = 256; id < 262; ++id) learnt.push_back(tokenizer.bytes_of(id));
  EXPECT_EQ(learnt, (Words{"lo", "low", " low", " lowe", "st", "<|endoftext|>"}));
  EXPECT_EQ(tokenizer.end_of_text(), 261);
}

TEST(Tokenizer, NumbersBytesAsGpt2Does) {
  const Tokenizer tokenizer = low_lower_lowest();
  EXPECT_EQ(tokenizer.bytes_of(0), "!");
  EXPECT_EQ(tokenizer.bytes_of(93), "~");
  EXPECT_EQ(tokenizer.bytes_of(94), "\xa1");
  EXPECT_EQ(tokenizer.bytes_of(187), "\xff");
  EXPECT_EQ(tokenizer.bytes_of(188), std::string(1, '\0'));
  EXPECT_EQ(tokenizer.bytes_of(220), " ");
  EXPECT_EQ(tokenizer.bytes_of(255), "\xad");
}

TEST(Tokenizer, MergesWithinWordsOnly) {
  const Tokenizer tokenizer = low_lower_lowest();
  EXPECT_EQ(pieces_of(tokenizer, "low lowest"), (Words{"low", " lowe", "st"}));
  EXPECT_EQ(pieces_of(tokenizer, "slower lo"), (Words{"s", "low", "e", "r", " ", "lo"}));
  EXPECT_EQ(pieces_of(tokenizer, "lo1w"), (Words{"lo", "1", "w"}));
}

TEST(Tokenizer, TakesTheEarliestMergeThenTheLeftmost) {
  // "bc" is learnt before "ab": in "abc" it wins though it stands further right.
  const Tokenizer tokenizer = Tokenizer::train("bc,bc,bc,ab,ab,aaa,aaa", 260);
  ASSERT_EQ(tokenizer.bytes_of(256), "aa");  // four, overlapping, as Hugging Face's trainer counts
  ASSERT_EQ(tokenizer.bytes_of(257), "bc");
  ASSERT_EQ(tokenizer.bytes_of(258), "ab");
  EXPECT_EQ(pieces_of(tokenizer, "abc"), (Words{"a", "bc"}));
  EXPECT_EQ(pieces_of(tokenizer, "aaa"), (Words{"aa", "a"}));
  EXPECT_EQ(pieces_of(tokenizer, "aaaaa"), (Words{"aa", "aa", "a"}));
}

TEST(Tokenizer, DecodesWhatItEncoded) {
  const std::string text = "The lowest slope: \u6f22\u5b57, na\u00efve;  it's\r\n\t<|endoftext|>";
  for (const Tokenizer& tokenizer : {Tokenizer::bytes(), low_lower_lowest()}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    for (int byte = 0; byte < 256; ++byte) {
      const std::string one(1, static_cast<char>(byte));
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(one)), one) << byte;
    }
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
      const std::string bytes = random_bytes(1 + seed * 37, seed);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes) << seed;
    }
    EXPECT_EQ(tokenizer.encode(""), Ids{});
    EXPECT_EQ(tokenizer.decode({}), "");
  }
}

TEST(Tokenizer, RepeatedWordsGetTheIdsOfTheFirst) {
  const Tokenizer tokenizer = low_lower_lowest();
  std::mt19937 random(7);
  std::string text;
  Ids expected;
  for (int i = 0; i < 20'000; ++i) {  // far tokenizer words than slots of a short text's cache
    std::string word = " ";
    for (int k = 0; k < 3; ++k) word += "lowerst"[random() % 7];
    const Ids alone = tokenizer.encode(word);
    expected.insert(expected.end(), alone.begin(), alone.end());
    text += word;
  }
  EXPECT_EQ(tokenizer.encode(text), expected);
}

TEST(Tokenizer, EncodesAWordOfAMillionBytes) {
  const Tokenizer tokenizer = Tokenizer::train(std::string(64, 'a'), 256 + 6 + 1);
  ASSERT_EQ(tokenizer.bytes_of(261), std::string(64, 'a'));
  const std::string word(1'000'000, 'a');
  EXPECT_EQ(tokenizer.encode(word), Ids(1'000'000 / 64, 261));
}

TEST(Tokenizer, EncodesInSeveralThreadsAtOnce) {
  const Tokenizer tokenizer = low_lower_lowest();
  const std::string text = random_bytes(20'000, 1) + "low lower lowest";
  std::vector<Ids> results(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& result : results)
      threads.emplace_back([&tokenizer, &text, &result] { result = tokenizer.encode(text); });
  }
  for (const Ids& result : results) EXPECT_EQ(result, tokenizer.encode(text));
}

TEST(Tokenizer, RefusesIdsThatItDoesNotHave) {
  const Tokenizer bytes = Tokenizer::bytes();
  const Ids ids{1, 256};
  EXPECT_TRUE(error_says([&] { bytes.decode(ids); }, {"id 256", "0 to 255"}));
  EXPECT_TRUE(error_says([&] { bytes.bytes_of(-1); }, {"id -1", "0 to 255"}));
}

TEST(Tokenizer, LearnsNoMoreThanTheTextHas) {
  EXPECT_EQ(Tokenizer::train("", 257).vocabulary(), 257);
  EXPECT_EQ(Tokenizer::train("abab", 259).bytes_of(257), "abab");
  EXPECT_TRUE(error_says([] { Tokenizer::train("abab", 260); },
                         {"vocabulary of 260", "only 259 tokens", "2 merges"}));
  EXPECT_TRUE(error_says([] { Tokenizer::train("abab", 256); }, {"256", "expected 257"}));
  EXPECT_TRUE(error_says([] { Tokenizer::train("abab", 1 << 21); }, {"2097152", "1048576"}));
}

TEST(Tokenizer, HashTellsTokenizersApart) {
  EXPECT_EQ(low_lower_lowest().hash(), low_lower_lowest().hash());
  EXPECT_NE(low_lower_lowest().hash(), Tokenizer::bytes().hash());
  EXPECT_NE(Tokenizer::train("abab", 258).hash(), Tokenizer::train("abab", 259).hash());
  EXPECT_NE(Tokenizer::train("abab", 258).hash(), Tokenizer::train("acac", 258).hash());
}

}  // namespace
}  // namespace aisc
