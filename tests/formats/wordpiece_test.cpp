// WordPiece: the words that a text is cut into, their pieces, and the same ids as Hugging Face's
// BertTokenizer. tests/fixtures/make_bert_fixture made the files.
#include "formats/wordpiece.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/core/system/files.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Json = nlohmann::json;
using PieceIds = std::vector<std::int32_t>;

const char* const kBertFolder = AISC_SOURCE_DIR "/tests/fixtures/bert";

Json wordpiece_fixture() {
  return Json::parse(read_file(std::string(kBertFolder) + "/wordpiece.json"));
}

std::vector<std::string> bert_words(std::string_view text, const WordRules& rules = {}) {
  std::vector<std::string> words;
  for_each_word(text, rules, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}
using BertWords = std::vector<std::string>;

// Ids 0 to 4, then the tokens given.
WordPiece with_tokens(const std::string& tokens) {
  return WordPiece::from_vocab("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + tokens);
}

TEST(WordsOfBert, AreLoweredAndLoseTheirAccents) {
  EXPECT_EQ(bert_words("Hello  WORLD\n\tnaïve CAFE\u0301 Ångström"),
            (BertWords{"hello", "world", "naive", "cafe", "angstrom"}));
  const WordRules cased{.lower_case = false, .strip_accents = false};
  EXPECT_EQ(bert_words("Hello CAFÉ", cased), (BertWords{"Hello", "CAFÉ"}));
  EXPECT_EQ(bert_words("CAFÉ", {.lower_case = true, .strip_accents = false}), (BertWords{"café"}));
  EXPECT_EQ(bert_words("CAFÉ", {.lower_case = false, .strip_accents = true}), (BertWords{"CAFE"}));
}

// U+0130 is the one capital whose lower case has two characters, of which the second is an accent.
TEST(WordsOfBert, LowerACapitalIWithItsDot) {
  EXPECT_EQ(bert_words("İ"), (BertWords{"i"}));
  EXPECT_EQ(bert_words("İ", {.lower_case = true, .strip_accents = false}), (BertWords{"i\u0307"}));
}

TEST(WordsOfBert, EndAtPunctuationWhichIsAWord) {
  EXPECT_EQ(bert_words("don't, (well)..."),
            (BertWords{"don", "'", "t", ",", "(", "well", ")", ".", ".", "."}));
  // Of ASCII all signs; of other characters Unicode's punctuation, so that a plus is one and a
  // division sign is none.
  EXPECT_EQ(bert_words("a+b=$1^c ÷d«e»"),
            (BertWords{"a", "+", "b", "=", "$", "1", "^", "c", "÷d", "«", "e", "»"}));
  EXPECT_EQ(bert_words("a\u2260b"),
            (BertWords{"a", "=", "b"}));  // taken apart, it is a sign and a mark
}

TEST(WordsOfBert, AreSingleIdeographsButNotKanaOrHangul) {
  EXPECT_EQ(bert_words("ab中国cd"), (BertWords{"ab", "中", "国", "cd"}));
  EXPECT_EQ(bert_words("かな"), (BertWords{"かな"}));
  EXPECT_EQ(bert_words("가"), (BertWords{"\u1100\u1161"}));  // decomposed as accents are
  EXPECT_EQ(bert_words("ab中国", {.split_ideographs = false}), (BertWords{"ab中国"}));
}

TEST(WordsOfBert, AreWithoutControlsAndWhatIsNoText) {
  const std::string_view with_zero("a\0b", 3);
  EXPECT_EQ(bert_words(with_zero), (BertWords{"ab"}));
  EXPECT_EQ(bert_words("a\u00adb\u200bc\x01"
                       "d\ufffde\ue000f"),
            (BertWords{"abcdef"}));
  EXPECT_EQ(bert_words("a\x0b"
                       "b\u0085c"),
            (BertWords{"abc"}));  // spaces elsewhere, controls here
  EXPECT_EQ(bert_words("a\u00a0b\u3000c\u2028d"), (BertWords{"a", "b", "c", "d"}));
  EXPECT_EQ(bert_words("a\xff"
                       "b\xc3 c\xe4\xb8"),
            (BertWords{"ab", "c"}))
      << "broken UTF-8";
  EXPECT_EQ(bert_words(""), BertWords{});
  EXPECT_EQ(bert_words("\u0301 \u200b"), BertWords{}) << "nothing is left of it";
}

// The example of the original code: "unaffable" -> "un ##aff ##able".
TEST(WordPieceEncoding, TakesTheLongestPieceFromTheLeft) {
  const WordPiece pieces = with_tokens("un\nu\n##n\n##aff\n##able\n##a\n##ff\nuna\n##fable\n");
  EXPECT_EQ(pieces.vocabulary(), 14);
  EXPECT_EQ(pieces.encode("un"), PieceIds{5});
  EXPECT_EQ(pieces.encode("Un UN"), (PieceIds{5, 5}));
  EXPECT_EQ(pieces.encode("unn"), (PieceIds{5, 7}));
  // Greedy: "una ##ff ##able", though "un ##aff ##able" is there, too.
  EXPECT_EQ(pieces.encode("unaffable"), (PieceIds{12, 11, 9}));
  // And greedy to the end: "una ##f..." leads nowhere and is not tried again as "un ##a ##fable".
  EXPECT_EQ(pieces.encode("unafable"), (PieceIds{12, 13}));
  EXPECT_EQ(pieces.encode("unab"), PieceIds{1})
      << "a word without a cut is one [UNK], not \"una [UNK]\"";
  EXPECT_EQ(pieces.encode("able"), PieceIds{1}) << "\"##able\" cannot begin a word";
  EXPECT_EQ(pieces.encode("un x un"), (PieceIds{5, 1, 5}));
  EXPECT_EQ(pieces.encode(""), PieceIds{});
}

TEST(WordPieceEncoding, GivesUpOnWordsOfMoreThan100Characters) {
  const WordPiece pieces = with_tokens("e\n##e\n");
  const WordPiece kept = WordPiece::from_vocab("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\né\n##é\n",
                                               {.lower_case = false, .strip_accents = false});
  std::string word;
  for (int i = 0; i < 100; ++i) word += "é";  // 200 bytes
  EXPECT_EQ(pieces.encode(word).size(), 100u);
  EXPECT_EQ(kept.encode(word).size(), 100u);
  for (const WordPiece* of_100 : {&pieces, &kept}) {
    EXPECT_EQ(of_100->encode(word + "é"), PieceIds{1});
  }
}

TEST(WordPieceEncoding, TakesTheNamesOfSpecialTokensForText) {
  const WordPiece pieces = with_tokens("[\n]\nmask\n");
  EXPECT_EQ(pieces.encode("[MASK]"), (PieceIds{5, 7, 6}));
  const auto [pad, unknown, cls, sep, mask] = pieces.special();
  EXPECT_EQ((PieceIds{pad, unknown, cls, sep, mask}), (PieceIds{0, 1, 2, 3, 4}));
}

TEST(WordPieceEncoding, IsHuggingFaces) {
  const WordPiece lowered = WordPiece::read(kBertFolder);
  const WordPiece cased = WordPiece::from_vocab(read_file(std::string(kBertFolder) + "/vocab.txt"),
                                                {.lower_case = false, .strip_accents = false});
  const Json fixture = wordpiece_fixture();
  ASSERT_GT(fixture["texts"].size(), 20u);
  for (const Json& one : fixture["texts"]) {
    const std::string text = one["text"];
    EXPECT_EQ(lowered.encode(text), one["lowered"].get<PieceIds>()) << text;
    EXPECT_EQ(cased.encode(text), one["cased"].get<PieceIds>()) << text;
    EXPECT_EQ(lowered.decode(one["lowered"].get<PieceIds>()), one["spaced"].get<std::string>())
        << text;
  }
}

TEST(WordPieceEncoding, OfPairsIsHuggingFaces) {
  const WordPiece pieces = WordPiece::read(kBertFolder);
  const Json fixture = wordpiece_fixture();
  ASSERT_GT(fixture["pairs"].size(), 10u);
  for (const Json& one : fixture["pairs"]) {
    const std::string a = one["a"], b = one["b"];
    const WordPiece::Encoded pair = pieces.encode_pair(a, b, one["most"]);
    EXPECT_EQ(pair.ids, one["ids"].get<PieceIds>()) << a << " | " << b << " | " << one["most"];
    EXPECT_EQ(pair.segments, one["segments"].get<PieceIds>()) << a << " | " << b << one["most"];
  }
}

TEST(WordPieceEncoding, PutsSpecialTokensAroundTexts) {
  const WordPiece pieces = with_tokens("a\nb\nc\nd\n");
  const WordPiece::Encoded pair = pieces.encode_pair("a b", "c", 100);
  EXPECT_EQ(pair.ids, (PieceIds{2, 5, 6, 3, 7, 3}));
  EXPECT_EQ(pair.segments, (PieceIds{0, 0, 0, 0, 1, 1}));
  // Of a b c d and a b in 7 ids there is room for 4: the longer one loses its end.
  EXPECT_EQ(pieces.encode_pair("a b c d", "a b", 7).ids, (PieceIds{2, 5, 6, 3, 5, 6, 3}));
  EXPECT_EQ(pieces.encode_pair("a b", "a b c d", 7).ids, (PieceIds{2, 5, 6, 3, 5, 6, 3}));
  EXPECT_EQ(pieces.encode_pair("a b", "a", 3).ids, (PieceIds{2, 3, 3}));
  const WordPiece::Encoded single = pieces.encode_single("a b c", 4);
  EXPECT_EQ(single.ids, (PieceIds{2, 5, 6, 3}));
  EXPECT_EQ(single.segments, (PieceIds{0, 0, 0, 0}));
  EXPECT_EQ(pieces.encode_single("", 2).ids, (PieceIds{2, 3}));
  EXPECT_TRUE(error_says([&] { pieces.encode_pair("a", "b", 2); },
                         {"wordpiece", "at most 2", "3 or more"}));
  EXPECT_TRUE(
      error_says([&] { pieces.encode_single("a", 1); }, {"wordpiece", "at most 1", "2 or more"}));
}

TEST(WordPieceDecoding, JoinsPiecesAndLeavesSpecialTokensOut) {
  const WordPiece pieces = with_tokens("un\n##able\n,\n");
  EXPECT_EQ(pieces.decode(PieceIds{2, 5, 6, 7, 5, 3, 0, 0}), "unable , un");
  EXPECT_EQ(pieces.decode(PieceIds{}), "");
  EXPECT_EQ(pieces.decode(PieceIds{4, 6, 5}), "##able un") << "it continues nothing";
  EXPECT_EQ(pieces.token(6), "##able");
  for (const std::int32_t id : {-1, 8}) {
    EXPECT_TRUE(error_says(
        [&] {
          pieces.decode(PieceIds{5, id});
        },
        {"wordpiece", std::to_string(id), "0 to 7"}));
    EXPECT_TRUE(error_says([&] { pieces.token(id); }, {std::to_string(id)}));
  }
}

TEST(WordPieceHash, TellsVocabulariesAndRulesApart) {
  const std::string vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n";
  const std::uint64_t hash = WordPiece::from_vocab(vocab).hash();
  EXPECT_EQ(WordPiece::from_vocab(vocab).hash(), hash);
  EXPECT_NE(WordPiece::from_vocab(vocab + "c\n").hash(), hash);
  EXPECT_NE(with_tokens("b\na\n").hash(), hash);
  EXPECT_NE(WordPiece::from_vocab(vocab, {.lower_case = false}).hash(), hash);
  EXPECT_NE(WordPiece::from_vocab(vocab, {.strip_accents = false}).hash(), hash);
  EXPECT_NE(WordPiece::from_vocab(vocab, {.split_ideographs = false}).hash(), hash);
}

}  // namespace
}  // namespace aisc
