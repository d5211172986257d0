// WordPiece's vocabularies: read, learnt, written and read back, and what is said about files that
// are damaged or of another kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/system/files.h"
#include "formats/wordpiece.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

const char* const kSpecialLines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

std::vector<std::string> tokens_of(const WordPiece& pieces) {
  std::vector<std::string> tokens;
  for (std::int32_t id = 0; id < pieces.vocabulary(); ++id) tokens.push_back(pieces.token(id));
  return tokens;
}

::testing::AssertionResult vocabulary_says(const std::string& lines,
                                           std::vector<std::string> fragments) {
  fragments.emplace_back("v.txt");
  return error_says([&] { WordPiece::from_vocab(lines, {}, "v.txt"); }, fragments);
}

TEST(WordPieceFiles, HaveATokenALine) {
  const WordPiece unix = WordPiece::from_vocab(std::string("a\n") + kSpecialLines + "##b\n");
  EXPECT_EQ(tokens_of(unix),
            (std::vector<std::string>{"a", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##b"}));
  EXPECT_EQ(unix.special().pad, 1);
  EXPECT_EQ(unix.special().mask, 5);
  std::string lines = "a\r\n[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\n##b";
  EXPECT_EQ(tokens_of(WordPiece::from_vocab(lines)), tokens_of(unix));
}

TEST(WordPieceFiles, NameTheLineThatIsNoToken) {
  const std::string special = kSpecialLines;
  EXPECT_TRUE(vocabulary_says("", {"no [PAD]", "0 tokens"}));
  EXPECT_TRUE(vocabulary_says("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", {"no [MASK]", "5 tokens"}));
  EXPECT_TRUE(vocabulary_says(special + "a\n\nb\n", {"line 7", "empty", "expected a token"}));
  EXPECT_TRUE(vocabulary_says(special + "\r\n", {"line 6", "empty"}));
  EXPECT_TRUE(vocabulary_says(special + "a\nb\na\n", {"line 8", "\"a\"", "second time", "line 6"}));
  EXPECT_TRUE(vocabulary_says(special + "a 17\n", {"line 6", "\"a 17\"", "one token a line"}));
  EXPECT_TRUE(vocabulary_says(special + "ab\xff\n", {"line 6", "byte 2", "0xff", "UTF-8"}));
}

TEST(WordPieceFiles, HaveAtMostAMillionTokens) {
  std::string lines;
  for (std::int64_t i = 0; i < WordPiece::kLargestVocabulary; ++i) lines += "a\n";
  EXPECT_TRUE(vocabulary_says(lines, {"line 2", "second time"})) << "not too many yet";
  EXPECT_TRUE(vocabulary_says(lines + "a", {"found 1048577 tokens", "1048576 or fewer"}));
}

TEST(WordPieceFiles, SayHowWordsAreCut) {
  const auto rules = [](const std::string& config) {
    return WordPiece::rules_of(config, "t.json");
  };
  const auto says = [&](const std::string& config, std::vector<std::string> fragments) {
    fragments.emplace_back("t.json");
    return error_says([&] { rules(config); }, fragments);
  };
  EXPECT_EQ(rules("{}"), WordRules{});
  EXPECT_EQ(rules(R"({"do_lower_case": false})"),
            (WordRules{.lower_case = false, .strip_accents = false}));
  EXPECT_EQ(rules(R"({"do_lower_case": false, "strip_accents": true})"),
            (WordRules{.lower_case = false}));
  EXPECT_EQ(rules(R"({"strip_accents": null, "tokenize_chinese_chars": false})"),
            (WordRules{.split_ideographs = false}));
  EXPECT_EQ(rules(R"({"unk_token": {"content": "[UNK]"}, "mask_token": "[MASK]"})"), WordRules{});
  EXPECT_TRUE(says("[]", {"[]", "expected an object"}));
  EXPECT_TRUE(says("{", {"not JSON"}));
  EXPECT_TRUE(says(R"({"do_lower_case": "yes"})", {"do_lower_case", "\"yes\"", "true or false"}));
  EXPECT_TRUE(says(R"({"do_basic_tokenize": false})", {"do_basic_tokenize", "false", "true"}));
  EXPECT_TRUE(says(R"({"unk_token": "<unk>"})", {"unk_token", "\"<unk>\"", "\"[UNK]\""}));
  EXPECT_TRUE(says(R"({"pad_token": {"content": 3}})", {"pad_token", "3", "\"[PAD]\""}));
}

TEST(WordPieceFiles, AreReadFromAFolderOrByName) {
  const TemporaryFolder folder;
  write_file(folder.path("vocab.txt"), std::string(kSpecialLines) + "é\ne\nE\n");
  EXPECT_EQ(WordPiece::read(folder.path()).encode("É"), std::vector<std::int32_t>{6});
  write_file(folder.path("tokenizer_config.json"), R"({"do_lower_case": false})");
  for (const std::string& path : {folder.path(), folder.path("vocab.txt")})
    EXPECT_EQ(WordPiece::read(path).encode("é E"), (std::vector<std::int32_t>{5, 7}));
  write_file(folder.path("tokenizer_config.json"), "7");
  EXPECT_TRUE(error_says([&] { WordPiece::read(folder.path()); },
                         {folder.path("tokenizer_config.json"), "expected an object"}));
  const TemporaryFolder empty;
  EXPECT_TRUE(error_says([&] { WordPiece::read(empty.path()); }, {empty.path("vocab.txt")}));
}

TEST(WordPieceFiles, HoldWhatWasWritten) {
  const std::string lines = std::string("a\n") + kSpecialLines + "##b\n中\n";
  for (const WordRules rules :
       {WordRules{}, WordRules{.lower_case = false}, WordRules{.strip_accents = false},
        WordRules{.split_ideographs = false}}) {
    const TemporaryFolder folder;
    const WordPiece pieces = WordPiece::from_vocab(lines, rules);
    pieces.write(folder.path());
    EXPECT_EQ(read_file(folder.path("vocab.txt")), lines);
    const WordPiece again = WordPiece::read(folder.path());
    EXPECT_EQ(again.rules(), rules);
    EXPECT_EQ(again.hash(), pieces.hash());
    const auto config = nlohmann::json::parse(read_file(folder.path("tokenizer_config.json")));
    EXPECT_EQ(config["tokenizer_class"], "BertTokenizer");
  }
}

// "hug" 10 times, "pug" 5, "pun" 12, "bun" 4, "hugs" 5. Pairs: h ##u 15, p ##u 17, ##u ##g 20,
// ##u ##n 16, b ##u 4, ##g ##s 5. So "##ug" (20), then "##un" (16), then "h" + "##ug" (15), "p" +
// "##un" (12); then of those with 5 "p" + "##ug" before "hug" + "##s", as "p" has the smaller id.
TEST(WordPieceTraining, MergesTheMostFrequentPairs) {
  std::string text;
  const auto add = [&](const char* word, int times) {
    for (int i = 0; i < times; ++i) text += std::string(word) + " ";
  };
  add("Hug", 10), add("pug", 5), add("pun", 12), add("bun", 4), add("hugs", 5);
  std::vector<std::string> expected{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "b",
                                    "g",     "h",     "n",     "p",     "s",      "u",
                                    "##g",   "##n",   "##s",   "##u"};
  EXPECT_EQ(tokens_of(WordPiece::train(text, 16)), expected);
  for (const char* merged : {"##ug", "##un", "hug", "pun", "pug", "hugs", "bun"})
    expected.emplace_back(merged);
  const WordPiece pieces = WordPiece::train(text, 23);
  EXPECT_EQ(tokens_of(pieces), expected);
  EXPECT_EQ(pieces.encode("bugs"), (std::vector<std::int32_t>{5, 16, 14}));
  EXPECT_TRUE(error_says([&] { WordPiece::train(text, 24); },
                         {"wordpiece", "vocabulary of 24", "only 23", "longer text"}));
  EXPECT_TRUE(error_says([&] { WordPiece::train(text, 15); },
                         {"vocabulary of 15", "16 or more", "5 special", "11 characters"}));
  EXPECT_TRUE(error_says([&] { WordPiece::train(text, 1 << 21); }, {"2097152", "1048576"}));
}

// Every pair stands once: the smallest ids win, "a" (5) before "b", and of these "##a" before
// "##b".
TEST(WordPieceTraining, OfEqualPairsMergesTheSmallestIds) {
  const std::vector<std::string> tokens = tokens_of(WordPiece::train("bb ba ab aa", 11));
  EXPECT_EQ(tokens, (std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a",
                                              "b", "##a", "##b", "aa", "ab"}));
}

// Straight from the definition: all words are counted anew before every merge.
std::vector<std::string> trained_slowly(const std::string& text, std::size_t vocabulary) {
  std::vector<std::vector<std::string>> words;
  std::set<std::string> first, behind;
  for_each_word(text, {}, [&](std::string_view word) {
    words.emplace_back();
    for (std::size_t i = 0; i < word.size(); ++i) {  // ASCII
      first.insert(std::string(1, word[i]));
      words.back().push_back((i == 0 ? "" : "##") + std::string(1, word[i]));
      if (i > 0) behind.insert(words.back().back());
    }
  });
  std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  tokens.insert(tokens.end(), first.begin(), first.end());
  tokens.insert(tokens.end(), behind.begin(), behind.end());
  const auto id_of = [&](const std::string& token) {
    return std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
  };
  while (tokens.size() < vocabulary) {
    std::map<std::pair<std::ptrdiff_t, std::ptrdiff_t>, int> counts;
    for (const auto& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i)
        ++counts[{id_of(word[i]), id_of(word[i + 1])}];
    const auto best =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;  // the first of equal ones
        });
    const std::string left = tokens[static_cast<std::size_t>(best->first.first)],
                      right = tokens[static_cast<std::size_t>(best->first.second)],
                      made = left + right.substr(2);
    if (std::find(tokens.begin(), tokens.end(), made) == tokens.end()) tokens.push_back(made);
    for (auto& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == left && word[i + 1] == right) {
          word[i] = made;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return tokens;
}

// Repeated letters overlap, and "aba" is made of "ab" + "##a" here and "a" + "##ba" there.
TEST(WordPieceTraining, IsWhatCountingAnewGives) {
  const std::string text =
      "aaa aaaa aaaaa aaaaaaa ababa abab baba abba aba aba bab babab abcabc cabcab bcabca abcab "
      "the then there these other mother another bother, the thesis' theme; thee aab aab baa";
  const std::vector<std::string> slow = trained_slowly(text, 62);
  EXPECT_EQ(tokens_of(WordPiece::train(text, 62)), slow);
  EXPECT_EQ(tokens_of(WordPiece::train(text + " " + std::string(101, 'z'), 62)), slow)
      << "words that are too long to be encoded are not learnt from";
}

TEST(WordPieceTraining, KnowsEveryWordOfItsText) {
  const std::string text = "Größe und Maß, 中国 中 naïve: Ωμέγα — мир.";
  const WordPiece pieces = WordPiece::train(text, 60);
  for (const std::int32_t id : pieces.encode(text)) EXPECT_NE(id, pieces.special().unknown);
  EXPECT_EQ(pieces.decode(pieces.encode(text)), "große und maß , 中 国 中 naive : ωμεγα — мир .");
  EXPECT_EQ(WordPiece::train("", 5).vocabulary(), 5);
}

}  // namespace
}  // namespace aisc
