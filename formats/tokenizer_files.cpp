// The files of tokenizers: GPT-2's vocab.json and merges.txt, Hugging Face's tokenizer.json. What a
// file claims is checked before it is believed.
#include <fmt/format.h>

#include <filesystem>
#include <unordered_map>

#include "common/core/error.h"
#include "common/core/system/files.h"
#include "formats/byte_alphabet.h"
#include "formats/json_file.h"
#include "formats/tokenizer.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string in_quotes(std::string_view s) {
  constexpr std::size_t kLongest = 160;
  const std::string part(s.substr(0, kLongest));
  return json(s.size() <= kLongest ? part : part + "...")
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

// What a value is, in few words: the type that a component names, a plain value, a kind of JSON.
std::string described(const json& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_object())
    if (const auto type = value.find("type"); type != value.end() && type->is_string())
      return described(*type);
  return value.is_structured() ? fmt::format("an {}", value.type_name()) : value.dump();
}

// The member of an object, or null where it is absent: the formats treat both alike.
const json& member(const json& object, const char* key) {
  static const json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

const json& object_member(const json& object, const char* key, const std::string& name) {
  const json& found = member(object, key);
  if (!found.is_object())
    fail(fmt::format("{}: {}: found {}, expected an object", name, key, described(found)));
  return found;
}

// `value` is null or one of `allowed`.
void check_setting(const json& value, std::initializer_list<json> allowed, const std::string& what,
                   const std::string& name) {
  if (value.is_null()) return;
  std::string expected = "null";
  for (const json& one : allowed) {
    if (value.type() == one.type() && value == one) return;
    expected += " or " + one.dump();
  }
  fail(fmt::format("{}: {}: found {}, expected {}", name, what, described(value), expected));
}

// `value` is null or a component of type ByteLevel.
void check_byte_level(const json& value, const char* what, const std::string& name) {
  if (value.is_null()) return;
  if (!value.is_object() || described(value) != "\"ByteLevel\"")
    fail(fmt::format("{}: {}: found {}, expected ByteLevel, as in GPT-2", name, what,
                     described(value)));
}

// Everything beside vocabulary and merges that would change how text is cut.
void check_components(const json& file, const json& model, const std::string& name) {
  check_setting(member(file, "normalizer"), {}, "normalizer", name);
  const json& words = object_member(file, "pre_tokenizer", name);
  check_byte_level(words, "pre_tokenizer", name);
  const json& prefix = member(words, "add_prefix_space");
  if (prefix.is_null())
    fail(name + ": pre_tokenizer: add_prefix_space: found nothing, expected false");
  check_setting(prefix, {false}, "pre_tokenizer: add_prefix_space", name);
  check_setting(member(words, "use_regex"), {true}, "pre_tokenizer: use_regex", name);
  check_byte_level(member(file, "post_processor"), "post_processor", name);
  check_byte_level(member(file, "decoder"), "decoder", name);
  check_setting(member(model, "type"), {"BPE"}, "model: type", name);
  check_setting(member(model, "dropout"), {0u, 0.0}, "model: dropout", name);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    check_setting(member(model, affix), {""}, fmt::format("model: {}", affix), name);
  for (const char* flag : {"byte_fallback", "ignore_merges"})
    check_setting(member(model, flag), {false}, fmt::format("model: {}", flag), name);
}

struct AddedToken {
  std::string content;
  const json* id;
};

std::vector<AddedToken> added_tokens(const json& file, const std::string& name) {
  std::vector<AddedToken> added;
  const json& list = member(file, "added_tokens");
  if (list.is_null()) return added;
  if (!list.is_array())
    fail(fmt::format("{}: added_tokens: found {}, expected an array", name, described(list)));
  for (const json& token : list) {
    if (!token.is_object() || !member(token, "content").is_string())
      fail(fmt::format("{}: added_tokens[{}]: found {}, expected an object with a string content",
                       name, added.size(), described(token)));
    const std::string& content = token["content"].get_ref<const std::string&>();
    const json& special = member(token, "special");
    if (special != true)
      fail(
          fmt::format("{}: added_tokens[{}], {}: special: found {}, expected true: other added "
                      "tokens change how text is cut",
                      name, added.size(), in_quotes(content), described(special)));
    added.push_back({content, &member(token, "id")});
  }
  return added;
}

// The last part of a path in a folder, or of the path itself.
std::string beside(const fs::path& path, const char* other) {
  return (path.parent_path() / other).string();
}

}  // namespace

// Puts a tokenizer together from keys (tokens as files write them), ids and merges, one by one.
struct Tokenizer::Files {
  std::string name;               // of the file with the ids, for errors
  std::vector<std::string> keys;  // by id
  std::vector<bool> has_key;
  std::unordered_map<std::string, std::int32_t> ids;
  std::vector<bool> is_special, is_made;  // by id; made by a merge
  std::vector<Merge> merges;
  std::unordered_map<std::uint64_t, std::size_t> places;  // of pairs among the merges

  Files(std::string file, std::size_t count) : name(std::move(file)), keys(count), has_key(count) {
    if (count > static_cast<std::size_t>(kLargestVocabulary))
      fail(fmt::format("{}: found {} tokens, expected {} or fewer", name, count,
                       kLargestVocabulary));
    is_special.resize(count);
    is_made.resize(count);
  }

  void add_token(const std::string& key, const json& id);
  void add_vocabulary(const json& vocab);
  void add_special(const AddedToken& token);
  void add_merge(const std::string& left, const std::string& right, const std::string& where);
  void add_merge(const json& merge, std::size_t place);
  void add_merges(std::string_view lines, const std::string& file);
  std::int32_t id_of(const std::string& key, const char* role, const std::string& where) const;
  std::string bytes_of(std::size_t id) const;
  Tokenizer tokenizer();
};

void Tokenizer::Files::add_token(const std::string& key, const json& id) {
  const auto count = static_cast<std::int64_t>(keys.size());
  if (!id.is_number_integer())
    fail(fmt::format("{}: id of token {}: found {}, expected an integer", name, in_quotes(key),
                     described(id)));
  // Unsigned numbers above 2^63 wrap round to negative ones, which are refused as well.
  const auto number = id.get<std::int64_t>();
  if (number < 0 || number >= count)
    fail(fmt::format("{}: id of token {}: found {}, expected 0 to {}, as there are {} tokens", name,
                     in_quotes(key), id.dump(), count - 1, count));
  const auto place = static_cast<std::size_t>(number);
  if (has_key[place])
    fail(fmt::format("{}: id {} is given twice, to {} and {}, so another one is missing", name,
                     number, in_quotes(keys[place]), in_quotes(key)));
  has_key[place] = true;
  keys[place] = key;
  ids.emplace(key, static_cast<std::int32_t>(number));
}

void Tokenizer::Files::add_vocabulary(const json& vocab) {
  for (auto entry = vocab.begin(); entry != vocab.end(); ++entry)
    add_token(entry.key(), entry.value());
}

void Tokenizer::Files::add_special(const AddedToken& token) {
  const auto found = ids.find(token.content);
  if (found == ids.end()) {
    add_token(token.content, *token.id);
  } else if (!token.id->is_number_integer() || *token.id != found->second) {
    fail(fmt::format("{}: added token {}: found id {}, expected {}, as in the vocabulary", name,
                     in_quotes(token.content), described(*token.id), found->second));
  }
  is_special[static_cast<std::size_t>(ids.at(token.content))] = true;
}

std::int32_t Tokenizer::Files::id_of(const std::string& key, const char* role,
                                     const std::string& where) const {
  const auto found = ids.find(key);
  if (found == ids.end())
    fail(
        fmt::format("{}: the merge's {} {} is not in the vocabulary", where, role, in_quotes(key)));
  return found->second;
}

void Tokenizer::Files::add_merge(const std::string& left, const std::string& right,
                                 const std::string& where) {
  const Merge merge{id_of(left, "left part", where), id_of(right, "right part", where),
                    id_of(left + right, "result", where)};
  const auto key =
      static_cast<std::uint64_t>(merge.left) << 32 | static_cast<std::uint64_t>(merge.right);
  if (!places.emplace(key, merges.size()).second)
    fail(
        fmt::format("{}: found the merge of {} and {} a second time, expected it once: it was "
                    "merge {}",
                    where, in_quotes(left), in_quotes(right), places.at(key) + 1));
  is_made[static_cast<std::size_t>(merge.result)] = true;
  merges.push_back(merge);
}

// A merge is "left right" or ["left", "right"], by the age of the file.
void Tokenizer::Files::add_merge(const json& merge, std::size_t place) {
  const std::string where = fmt::format("{}: model: merges[{}]", name, place);
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return add_merge(merge[0].get<std::string>(), merge[1].get<std::string>(), where);
  if (merge.is_string()) {
    const std::string& both = merge.get_ref<const std::string&>();
    const std::size_t space = both.find(' ');
    if (space != std::string::npos && space == both.rfind(' '))
      return add_merge(both.substr(0, space), both.substr(space + 1), where);
  }
  fail(fmt::format("{}: found {}, expected two tokens with one space between them", where,
                   described(merge)));
}

void Tokenizer::Files::add_merges(std::string_view lines, const std::string& file) {
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);  // no token: a byte 13 is written otherwise
    if (number == 1 && line.starts_with("#version")) continue;
    if (line.empty() && lines.empty()) return;
    const std::string where = fmt::format("{}: line {}", file, number);
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space != line.rfind(' '))
      fail(fmt::format("{}: found {}, expected two tokens with one space between them", where,
                       in_quotes(line)));
    add_merge(std::string(line.substr(0, space)), std::string(line.substr(space + 1)), where);
  }
}

// A token that no merge makes is a byte or a name in angle brackets, else the merges are not whole.
std::string Tokenizer::Files::bytes_of(std::size_t id) const {
  const std::string& key = keys[id];
  if (is_special[id]) return key;
  const std::optional<std::string> bytes = from_alphabet(key);
  if (!bytes)
    fail(
        fmt::format("{}: token {} (id {}) has a character that stands for no byte, expected "
                    "GPT-2's 256, such as U+0120 for a space",
                    name, in_quotes(key), id));
  if (bytes->size() != 1 && !is_made[id])
    fail(
        fmt::format("{}: token {} (id {}) is made by none of the {} merges, expected one: are "
                    "the merges of this vocabulary, and whole?",
                    name, in_quotes(key), id, merges.size()));
  return *bytes;
}

Tokenizer Tokenizer::Files::tokenizer() {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> special;
  std::vector<bool> has_byte(256);
  for (std::size_t id = 0; id < keys.size(); ++id) {
    const std::string& key = keys[id];
    if (key.size() > 2 && key.starts_with('<') && key.ends_with('>') && !is_made[id])
      is_special[id] = true;
    if (is_special[id] && is_made[id])
      fail(fmt::format("{}: token {} (id {}) is added and made by a merge, expected one of both",
                       name, in_quotes(key), id));
    tokens.push_back(bytes_of(id));
    if (is_special[id]) special.push_back(static_cast<std::int32_t>(id));
    if (tokens[id].size() != 1) continue;
    if (is_special[id])
      fail(fmt::format("{}: added token {}: found a single byte, which is text, expected a name",
                       name, in_quotes(key)));
    has_byte[static_cast<unsigned char>(tokens[id][0])] = true;
  }
  for (std::size_t byte = 0; byte < has_byte.size(); ++byte)
    if (!has_byte[byte])
      fail(fmt::format("{}: byte {} is missing, expected the token {}", name, byte,
                       in_quotes(to_alphabet(std::string(1, static_cast<char>(byte))))));
  return {std::move(tokens), std::move(merges), std::move(special)};
}

Tokenizer Tokenizer::from_vocab_and_merges(std::string_view vocab_json, std::string_view merges,
                                           const std::string& vocab_name,
                                           const std::string& merges_name) {
  const json vocab = parse_json(vocab_json, vocab_name);
  if (!vocab.is_object())
    fail(fmt::format("{}: found {}, expected an object of tokens and ids", vocab_name,
                     described(vocab)));
  Files files(vocab_name, vocab.size());
  files.add_vocabulary(vocab);
  files.add_merges(merges, merges_name);
  return files.tokenizer();
}

Tokenizer Tokenizer::from_tokenizer_json(std::string_view text, const std::string& name) {
  const json file = parse_json(text, name);
  if (!file.is_object())
    fail(fmt::format("{}: found {}, expected an object", name, described(file)));
  const json& model = object_member(file, "model", name);
  check_components(file, model, name);
  const json& vocab = object_member(model, "vocab", name);
  const json& merges = member(model, "merges");
  if (!merges.is_array())
    fail(fmt::format("{}: model: merges: found {}, expected an array", name, described(merges)));
  const std::vector<AddedToken> added = added_tokens(file, name);
  std::size_t count = vocab.size();
  for (const AddedToken& token : added) count += vocab.contains(token.content) ? 0 : 1;
  Files files(name, count);
  files.add_vocabulary(vocab);
  for (const AddedToken& token : added) files.add_special(token);
  for (std::size_t i = 0; i < merges.size(); ++i) files.add_merge(merges[i], i);
  return files.tokenizer();
}

Tokenizer Tokenizer::read(const std::string& path) {
  const fs::path given(path);
  std::error_code unreadable;
  const bool is_folder = fs::is_directory(given, unreadable);
  const fs::path place = is_folder ? given / "x" : given;  // whatever lies beside it
  const auto has = [&](const char* file) { return fs::exists(beside(place, file), unreadable); };
  const auto names = [&](const char* file) {
    return is_folder ? has(file) : given.filename() == file;
  };
  const auto read_pair = [&](const char* vocab, const char* merges) {
    const std::string first = beside(place, vocab), second = beside(place, merges);
    const std::string vocab_json = read_file(first);
    return from_vocab_and_merges(vocab_json, read_file(second), first, second);
  };
  if (is_folder && has("tokenizer.json"))
    return from_tokenizer_json(read_file(beside(place, "tokenizer.json")),
                               beside(place, "tokenizer.json"));
  if (names("vocab.json") || names("merges.txt")) return read_pair("vocab.json", "merges.txt");
  if (names("encoder.json") || names("vocab.bpe")) return read_pair("encoder.json", "vocab.bpe");
  if (is_folder)
    fail(path +
         ": found no tokenizer in this folder, expected tokenizer.json, or vocab.json and "
         "merges.txt, or encoder.json and vocab.bpe");
  return from_tokenizer_json(read_file(path), path);
}

}  // namespace aisc
