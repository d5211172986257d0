// Tokenizers as files: Hugging Face's read here, ours written and read back, and what is said about
// files that are damaged or of another kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/core/system/files.h"
#include "formats/byte_alphabet.h"
#include "formats/tokenizer.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

using nlohmann::json;

const char* const kFixture = AISC_SOURCE_DIR "/tests/fixtures/bpe_300";

std::string fixture(const std::string& name) {
  return read_file(std::string(kFixture) + "/" + name);
}

// A change of the fixture's tokenizer.json, and what is said about it.
struct Refused {
  const char *place, *value;  // a JSON pointer, and what then stands there; "": nothing
  std::vector<std::string> fragments;
};

void expect_refused(const std::vector<Refused>& changes) {
  for (const auto& [place, value, fragments] : changes) {
    json file = json::parse(fixture("tokenizer.json"));
    const json::json_pointer pointer(place);
    if (*value)
      file[pointer] = json::parse(value);
    else
      file[pointer.parent_pointer()].erase(pointer.back());
    const auto read = [&] { Tokenizer::from_tokenizer_json(file.dump(), "t.json"); };
    EXPECT_TRUE(error_says(read, fragments)) << place << " " << value;
    EXPECT_TRUE(error_says(read, {"t.json"})) << place << " " << value;
  }
}

// Expects the error of a changed vocabulary of bytes, "ab" (256) and "abc" (257), and its merges.
::testing::AssertionResult pair_says(const std::function<void(json&)>& change,
                                     const std::string& merges,
                                     const std::vector<std::string>& fragments) {
  json vocab;
  for (const std::uint8_t byte : bytes_in_alphabet_order())
    vocab[to_alphabet(std::string(1, static_cast<char>(byte)))] = vocab.size();
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  change(vocab);
  return error_says([&] { Tokenizer::from_vocab_and_merges(vocab.dump(), merges, "v", "m"); },
                    fragments);
}

const char* const kMerges = "#version: 0.2\na b\nab c\n";
void no_change(json&) {}

class TokenizerFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }

  const TemporaryFolder folder_;
};

TEST_F(TokenizerFiles, EncodesAsHuggingFaceDoes) {
  std::istringstream numbers(fixture("ids.txt"));
  const std::vector<std::int32_t> expected(std::istream_iterator<std::int32_t>(numbers), {});
  ASSERT_EQ(expected.size(), 354u);
  const std::string text = fixture("text.txt");
  const Tokenizer whole = Tokenizer::read(kFixture);
  EXPECT_EQ(whole.vocabulary(), 300);
  EXPECT_EQ(whole.end_of_text(), 299);
  EXPECT_EQ(whole.encode(text), expected);
  EXPECT_EQ(whole.decode(expected), text);
  const Tokenizer pair = Tokenizer::read(std::string(kFixture) + "/merges.txt");
  EXPECT_EQ(pair.vocabulary(), 299);  // the end of text stands in tokenizer.json alone
  EXPECT_EQ(pair.end_of_text(), std::nullopt);
  EXPECT_EQ(pair.encode(text), expected);
}

TEST_F(TokenizerFiles, LearnsAsHuggingFaceDoes) {
  EXPECT_EQ(Tokenizer::train(fixture("text.txt"), 300).hash(), Tokenizer::read(kFixture).hash());
}

TEST_F(TokenizerFiles, AreReadBackAsTheyWereWritten) {
  const std::string text = fixture("text.txt") + "\xff\xc0";
  for (const Tokenizer& tokenizer : {Tokenizer::bytes(), Tokenizer::train(text, 290)}) {
    tokenizer.write(folder_.path());
    for (const char* name : {"", "tokenizer.json", "vocab.json", "merges.txt"}) {
      const Tokenizer read = Tokenizer::read(path(name));
      EXPECT_EQ(read.hash(), tokenizer.hash()) << name;
      EXPECT_EQ(read.end_of_text(), tokenizer.end_of_text()) << name;
      EXPECT_EQ(read.encode(text), tokenizer.encode(text)) << name;
    }
    const json config = json::parse(read_file(path("tokenizer_config.json")));
    EXPECT_EQ(config.contains("eos_token"), tokenizer.end_of_text().has_value());
  }
}

TEST_F(TokenizerFiles, KeepNamesThatAreNoText) {
  json file = json::parse(fixture("tokenizer.json"));
  json token = file["added_tokens"][0];
  token["id"] = 300;
  token["content"] = "<| start of \u6f22 |>";
  file["added_tokens"].push_back(token);
  file["model"]["vocab"]["<|endoftext|>"] = 299;  // listed in both places, as in GPT-2's file
  const Tokenizer tokenizer = Tokenizer::from_tokenizer_json(file.dump());
  EXPECT_EQ(tokenizer.bytes_of(300), "<| start of \u6f22 |>");
  EXPECT_EQ(tokenizer.end_of_text(), 299);
  const auto ids = tokenizer.encode("<| start of \u6f22 |><|endoftext|>");
  EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 299);
  tokenizer.write(folder_.path());
  EXPECT_EQ(Tokenizer::read(path("tokenizer.json")).hash(), tokenizer.hash());
  EXPECT_EQ(Tokenizer::read(path("vocab.json")).hash(), tokenizer.hash());
}

TEST_F(TokenizerFiles, MayHaveOpenAisNames) {
  write_file(path("encoder.json"), fixture("vocab.json"));
  write_file(path("vocab.bpe"), fixture("merges.txt"));
  for (const char* name : {"", "encoder.json", "vocab.bpe"})
    EXPECT_EQ(Tokenizer::read(path(name)).vocabulary(), 299) << name;
  EXPECT_TRUE(error_says([&] { Tokenizer::read(path("vocab.json")); }, {path("vocab.json")}));
}

TEST_F(TokenizerFiles, MayHaveWindowsLinesMergesAsPairsAndNoEndOfLine) {
  std::string lines, last = fixture("merges.txt");
  for (const char c : last) lines += c == '\n' ? std::string("\r\n") : std::string(1, c);
  last.pop_back();
  const Tokenizer expected = Tokenizer::read(std::string(kFixture) + "/vocab.json");
  for (const std::string& merges : {lines, last, last.substr(last.find('\n') + 1)})
    EXPECT_EQ(Tokenizer::from_vocab_and_merges(fixture("vocab.json"), merges).hash(),
              expected.hash());
  json file = json::parse(fixture("tokenizer.json"));
  for (json& merge : file["model"]["merges"]) {
    const std::string both = merge;
    const std::size_t space = both.find(' ');
    merge = json::array({both.substr(0, space), both.substr(space + 1)});
  }
  EXPECT_EQ(Tokenizer::from_tokenizer_json(file.dump()).hash(), Tokenizer::read(kFixture).hash());
}

TEST_F(TokenizerFiles, ThatAreMissingAreNamed) {
  EXPECT_TRUE(error_says([&] { Tokenizer::read(folder_.path()); },
                         {folder_.path(), "tokenizer.json", "merges.txt", "vocab.bpe"}));
  EXPECT_TRUE(error_says([&] { Tokenizer::read(path("nothing.json")); }, {path("nothing.json")}));
  write_file(path("vocab.json"), fixture("vocab.json"));
  EXPECT_TRUE(error_says([&] { Tokenizer::read(folder_.path()); }, {path("merges.txt")}));
}

TEST_F(TokenizerFiles, ThatAreNoJsonAreRefusedWithTheByte) {
  const std::string vocab = fixture("vocab.json");
  const auto says = [](const std::string& text, const std::vector<std::string>& fragments) {
    return error_says([&] { Tokenizer::from_tokenizer_json(text, "t.json"); }, fragments);
  };
  EXPECT_TRUE(says("", {"t.json: byte 1:", "not JSON"}));
  EXPECT_TRUE(says("{\"a\": 1,}", {"t.json: byte 9:"}));
  EXPECT_TRUE(says("{\"\xff\": 1}", {"t.json: byte 3:"}));
  EXPECT_TRUE(says("{\"a\": 1e999}", {"t.json", "1e999"}));
  EXPECT_TRUE(says("[1]", {"t.json: found an array, expected an object"}));
  for (const std::size_t cut : {vocab.size() - 2, vocab.size() / 2})
    EXPECT_TRUE(error_says([&] { Tokenizer::from_vocab_and_merges(vocab.substr(0, cut), ""); },
                           {"vocab.json: byte", "not JSON"}));
  EXPECT_TRUE(error_says([&] { Tokenizer::from_vocab_and_merges("7", ""); },
                         {"vocab.json: found 7, expected an object"}));
}

TEST_F(TokenizerFiles, ThatAreNestedDeeplyDoNotOverflowTheStack) {
  const std::string open(1'000'000, '['), close(1'000'000, ']');
  const std::string model = R"({"model": {"vocab": {}, "merges": []}, "normalizer": )";
  for (const std::string& text : {open, open + close, model + open + close + "}"})
    EXPECT_TRUE(error_says([&] { Tokenizer::from_tokenizer_json(text); }, {"nested deeper"}));
  const std::string vocab = R"({"a": )" + open + close + "}";
  EXPECT_TRUE(error_says([&] { Tokenizer::from_vocab_and_merges(vocab, ""); }, {"nested deeper"}));
}

TEST_F(TokenizerFiles, OfAnotherKindAreRefusedByName) {
  expect_refused(
      {{"/model/type", R"("WordPiece")", {"model: type", "WordPiece", "BPE"}},
       {"/normalizer", R"({"type": "NFC"})", {"normalizer", "NFC", "expected null"}},
       {"/pre_tokenizer", R"({"type": "Metaspace"})", {"pre_tokenizer", "Metaspace", "ByteLevel"}},
       {"/pre_tokenizer", "null", {"pre_tokenizer"}},
       {"/pre_tokenizer/add_prefix_space", "true", {"add_prefix_space", "found true", "false"}},
       {"/pre_tokenizer/add_prefix_space", "", {"add_prefix_space", "nothing"}},
       {"/pre_tokenizer/use_regex", "false", {"use_regex", "found false"}},
       {"/post_processor", R"({"type": "Roberta"})", {"post_processor", "Roberta"}},
       {"/decoder", R"({"type": "WordPiece"})", {"decoder"}},
       {"/model/dropout", "0.1", {"dropout", "0.1"}},
       {"/model/end_of_word_suffix", R"("</w>")", {"end_of_word_suffix", "</w>"}},
       {"/model/ignore_merges", "true", {"ignore_merges"}},
       {"/model/byte_fallback", "true", {"byte_fallback"}},
       {"/added_tokens/0/special",
        "false",
        {"added_tokens[0]", "<|endoftext|>", "special: found false"}}});
}

TEST_F(TokenizerFiles, WithMembersOfAnotherTypeAreRefused) {
  expect_refused(
      {{"/model", "", {"model: found null"}},
       {"/model/vocab", "[]", {"vocab: found an array"}},
       {"/model/merges", R"("a b")", {"merges: found \"a b\""}},
       {"/model/merges/7", "5", {"merges[7]: found 5"}},
       {"/model/merges/7", R"("a b c")", {"merges[7]"}},
       {"/model/merges/7", R"(["a", "b", "c"])", {"merges[7]: found an array"}},
       {"/added_tokens", "1", {"added_tokens: found 1"}},
       {"/added_tokens/0", R"("x")", {"added_tokens[0]"}},
       {"/added_tokens/0/id", "", {"<|endoftext|>", "found null, expected an integer"}}});
}

TEST_F(TokenizerFiles, WhoseIdsAreNotZeroToTheLastAreRefused) {
  EXPECT_TRUE(pair_says([](json& v) { v["abc"] = 258; }, kMerges,
                        {"v: id of token \"abc\"", "found 258, expected 0 to 257"}));
  EXPECT_TRUE(pair_says([](json& v) { v["abc"] = 256; }, kMerges, {"id 256 is given twice"}));
  EXPECT_TRUE(pair_says([](json& v) { v["abc"] = -1; }, kMerges, {"found -1"}));
  EXPECT_TRUE(pair_says([](json& v) { v["abc"] = 257.0; }, kMerges, {"found 257.0"}));
  EXPECT_TRUE(pair_says([](json& v) { v["abc"] = "257"; }, kMerges, {"found \"257\""}));
  EXPECT_TRUE(pair_says([](json& v) { v["abc"] = 18446744073709551615u; }, kMerges,
                        {"found 18446744073709551615"}));
  expect_refused(
      {{"/added_tokens/0/id", "3", {"id 3 is given twice"}},
       {"/added_tokens/0/content", R"("the")", {"added token \"the\"", "found id 299"}}});
}

TEST_F(TokenizerFiles, WithoutAByteAreRefused) {
  EXPECT_TRUE(pair_says([](json& v) { v.erase("z"), v["<z>"] = 89; }, kMerges,
                        {"v: byte 122 is missing", "\"z\""}));
  EXPECT_TRUE(pair_says([](json& v) { v.erase("z"), v["\u6f22"] = 89; }, kMerges,
                        {"v: token \"\u6f22\" (id 89)", "stands for no byte"}));
}

TEST_F(TokenizerFiles, WhoseMergesDoNotFitTheVocabularyAreRefused) {
  EXPECT_TRUE(pair_says(no_change, "a b\nab c\nabc d\n", {"m: line 3", "result \"abcd\""}));
  EXPECT_TRUE(pair_says(no_change, "a b\nbx c\n", {"m: line 2", "left part \"bx\""}));
  EXPECT_TRUE(pair_says(no_change, "a bb\n", {"m: line 1", "right part \"bb\""}));
  EXPECT_TRUE(pair_says(no_change, "a b\nab c\na b\n", {"m: line 3", "second time", "merge 1"}));
  EXPECT_TRUE(pair_says(no_change, "#version: 0.2\na b\n", {"\"abc\" (id 257)", "none of the 1"}));
  EXPECT_TRUE(pair_says(no_change, "a b\nabc\n", {"m: line 2: found \"abc\""}));
  EXPECT_TRUE(pair_says(no_change, "a b\n\nab c\n", {"m: line 2: found \"\""}));
  EXPECT_TRUE(pair_says(no_change, "a b\nab  c\n", {"m: line 2", "one space"}));
  EXPECT_TRUE(pair_says(no_change, "a b\n#version: 0.2\n", {"m: line 2", "#version:"}));
  EXPECT_TRUE(pair_says(no_change, "a b\n\xff c\n", {"m: line 2", "left part"}));
}

TEST_F(TokenizerFiles, WithMoreTokensThanAllowedAreRefused) {
  std::string vocab = "{";
  for (int id = 0; id <= 1 << 20; ++id) vocab += (id ? ",\"" : "\"") + std::to_string(id) + "\":0";
  EXPECT_TRUE(error_says([&] { Tokenizer::from_vocab_and_merges(vocab + "}", ""); },
                         {"found 1048577 tokens, expected 1048576"}));
}

}  // namespace
}  // namespace aisc
