// WordPiece's files: vocab.txt and tokenizer_config.json. What a file claims is checked before it
// is believed.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/core/error.h"
#include "common/core/system/files.h"
#include "formats/json_file.h"
#include "formats/wordpiece.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kVocabularyFile = "vocab.txt";
constexpr const char* kConfigFile = "tokenizer_config.json";

// Each special token, and what tokenizer_config.json calls it.
struct SpecialRole {
  const char *token, *key;
};
constexpr SpecialRole kSpecialRoles[] = {{"[PAD]", "pad_token"},
                                         {"[UNK]", "unk_token"},
                                         {"[CLS]", "cls_token"},
                                         {"[SEP]", "sep_token"},
                                         {"[MASK]", "mask_token"}};

// Bytes before the first that belongs to no UTF-8.
std::size_t valid_bytes(std::string_view text) {
  std::size_t valid = 0;
  while (valid < text.size()) {
    const std::string_view next = text.substr(valid, 4);
    utf8proc_int32_t character = 0;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(next.data()),
                         static_cast<utf8proc_ssize_t>(next.size()), &character);
    if (bytes <= 0) break;
    valid += static_cast<std::size_t>(bytes);
  }
  return valid;
}

void check_vocabulary_token(std::string_view token, const std::string& name, std::size_t line) {
  if (token.empty())
    fail(fmt::format("{}: line {}: found an empty line, expected a token", name, line));
  const std::size_t valid = valid_bytes(token);
  if (valid < token.size())
    fail(fmt::format("{}: line {}: byte {}: found {:#04x}, expected UTF-8", name, line, valid,
                     static_cast<unsigned char>(token[valid])));
  if (token.find_first_of(" \t") != std::string_view::npos)
    fail(fmt::format("{}: line {}: found {}, expected one token a line, without spaces", name, line,
                     shown(std::string(token))));
}

// null or absent: `otherwise`.
bool config_flag(const json& config, const char* key, const std::string& name, bool otherwise) {
  if (!config.contains(key) || config[key].is_null()) return otherwise;
  if (!config[key].is_boolean())
    fail(fmt::format("{}: {}: found {}, expected true or false", name, key, shown(config[key])));
  return config[key].get<bool>();
}

// A token is a string or, in older files, an object with its content.
void check_special_role(const json& config, const SpecialRole& role, const std::string& name) {
  if (!config.contains(role.key)) return;
  const json& said = config[role.key];
  const json& token = said.is_object() && said.contains("content") ? said["content"] : said;
  if (token != role.token)
    fail(
        fmt::format("{}: {}: found {}, expected \"{}\"", name, role.key, shown(token), role.token));
}

}  // namespace

WordPiece WordPiece::from_vocab(std::string_view vocab, const WordRules& rules,
                                const std::string& name) {
  const auto count = std::count(vocab.begin(), vocab.end(), '\n') +
                     (vocab.empty() || vocab.ends_with('\n') ? 0 : 1);
  if (count > kLargestVocabulary)
    fail(fmt::format("{}: found {} tokens, expected {} or fewer", name, count, kLargestVocabulary));
  std::vector<std::string> tokens;
  std::unordered_map<std::string_view, std::size_t> lines;  // by token, counted from 1
  for (std::size_t number = 1; !vocab.empty(); ++number) {
    const std::size_t end = std::min(vocab.find('\n'), vocab.size());
    std::string_view token = vocab.substr(0, end);
    vocab.remove_prefix(std::min(end + 1, vocab.size()));
    if (token.ends_with('\r')) token.remove_suffix(1);
    check_vocabulary_token(token, name, number);
    const auto [before, is_new] = lines.emplace(token, number);
    if (!is_new)
      fail(fmt::format("{}: line {}: found {} a second time, expected it once: it is line {}", name,
                       number, shown(std::string(token)), before->second));
    tokens.emplace_back(token);
  }
  for (const SpecialRole& role : kSpecialRoles)
    if (!lines.contains(role.token))
      fail(fmt::format("{}: found no {} among {} tokens, expected it on a line of its own", name,
                       role.token, tokens.size()));
  return {std::move(tokens), rules};
}

WordRules WordPiece::rules_of(std::string_view tokenizer_config, const std::string& name) {
  const json config = parse_json(tokenizer_config, name);
  if (!config.is_object())
    fail(fmt::format("{}: found {}, expected an object", name, shown(config)));
  for (const SpecialRole& role : kSpecialRoles) check_special_role(config, role, name);
  if (!config_flag(config, "do_basic_tokenize", name, true))
    fail(name + ": do_basic_tokenize: found false, expected true");
  WordRules rules;
  rules.lower_case = config_flag(config, "do_lower_case", name, true);
  rules.strip_accents = config_flag(config, "strip_accents", name, rules.lower_case);
  rules.split_ideographs = config_flag(config, "tokenize_chinese_chars", name, true);
  return rules;
}

WordPiece WordPiece::read(const std::string& path) {
  std::error_code unreadable;
  const bool is_folder = fs::is_directory(path, unreadable);
  const std::string vocab = is_folder ? (fs::path(path) / kVocabularyFile).string() : path;
  const std::string config = fs::path(vocab).replace_filename(kConfigFile).string();
  const WordRules rules =
      fs::exists(config, unreadable) ? rules_of(read_file(config), config) : WordRules{};
  return from_vocab(read_file(vocab), rules, vocab);
}

void WordPiece::write(const std::string& folder) const {
  std::string vocab;
  for (const std::string& token : tokens_) vocab += token + "\n";
  nlohmann::ordered_json config{{"tokenizer_class", "BertTokenizer"},
                                {"do_lower_case", rules_.lower_case},
                                {"strip_accents", rules_.strip_accents},
                                {"tokenize_chinese_chars", rules_.split_ideographs},
                                {"clean_up_tokenization_spaces", false}};
  for (const SpecialRole& role : kSpecialRoles) config[role.key] = role.token;
  write_file((fs::path(folder) / kVocabularyFile).string(), vocab);
  write_file((fs::path(folder) / kConfigFile).string(), config.dump(2) + "\n");
}

}  // namespace aisc
