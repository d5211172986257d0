// Writes a tokenizer's files as Hugging Face's libraries expect them. Vocabulary and merges become
// JSON by hand, since an object of JSON that keeps its order takes quadratic time to fill.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/core/system/files.h"
#include "formats/byte_alphabet.h"
#include "formats/tokenizer.h"

namespace aisc {
namespace {

using nlohmann::ordered_json;

std::string to_json(const std::string& s) {
  return ordered_json(s).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// The parts between brackets, each on a line of its own.
std::string joined(char open, const std::vector<std::string>& parts, char close) {
  std::string all(1, open);
  for (std::size_t i = 0; i < parts.size(); ++i) all += (i == 0 ? "\n" : ",\n") + parts[i];
  return all + "\n" + close;
}

std::string setting(const char* key, const std::string& value) {
  return fmt::format("{}: {}", to_json(key), value);
}

ordered_json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", true}};
}

// Adds nothing to the vocabulary: a class made for GPT-2 would add an end of text where none is.
ordered_json config(bool has_end_of_text) {
  ordered_json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"add_prefix_space", false},
                      {"clean_up_tokenization_spaces", false}};
  if (has_end_of_text)
    for (const char* role : {"bos_token", "eos_token", "unk_token"})
      config[role] = Tokenizer::kEndOfText;
  return config;
}

}  // namespace

void Tokenizer::write(const std::string& folder) const {
  std::vector<std::string> keys;  // by id
  for (const std::string& token : tokens_) keys.push_back(to_alphabet(token));
  std::vector<std::string> added;
  for (const std::int32_t id : special_) {
    const std::string& name = bytes_of(id);
    keys[static_cast<std::size_t>(id)] = name;
    added.push_back(ordered_json{
        {"id", id},
        {"content", name},
        {"single_word", false},
        {"lstrip", false},
        {"rstrip", false},
        {"normalized", false},
        {"special",
         true}}.dump());
  }
  std::vector<std::string> vocabulary, merges;
  for (std::size_t id = 0; id < keys.size(); ++id)
    vocabulary.push_back(fmt::format("{}: {}", to_json(keys[id]), id));
  std::string lines = "#version: 0.2\n";
  for (const Merge& merge : merges_) {
    const std::string line = keys[static_cast<std::size_t>(merge.left)] + " " +
                             keys[static_cast<std::size_t>(merge.right)];
    lines += line + "\n";
    merges.push_back(to_json(line));
  }
  const std::string vocab = joined('{', vocabulary, '}');
  const std::string model =
      joined('{',
             {setting("type", "\"BPE\""), setting("dropout", "null"), setting("unk_token", "null"),
              setting("continuing_subword_prefix", "null"), setting("end_of_word_suffix", "null"),
              setting("fuse_unk", "false"), setting("byte_fallback", "false"),
              setting("ignore_merges", "false"), setting("vocab", vocab),
              setting("merges", joined('[', merges, ']'))},
             '}');
  const std::string words = byte_level().dump();
  const std::string whole =
      joined('{',
             {setting("version", "\"1.0\""), setting("truncation", "null"),
              setting("padding", "null"), setting("added_tokens", joined('[', added, ']')),
              setting("normalizer", "null"), setting("pre_tokenizer", words),
              setting("post_processor", words), setting("decoder", words), setting("model", model)},
             '}');
  const auto put = [&](const char* name, const std::string& bytes) {
    write_file((std::filesystem::path(folder) / name).string(), bytes);
  };
  put("tokenizer.json", whole + "\n");
  put("vocab.json", vocab + "\n");
  put("merges.txt", lines);
  put("tokenizer_config.json", config(end_of_text_.has_value()).dump(2) + "\n");
}

}  // namespace aisc
