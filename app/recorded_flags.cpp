#include "app/recorded_flags.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "app/flag_table.h"
#include "app/flag_values.h"
#include "common/core/flags/terminal_text.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDerived = "derived";
constexpr const char* kProgram = "program";
constexpr const char* kLatin1 = "latin1";

// A flag's value as it is given.
std::string to_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return value.dump();
  std::string bytes;
  const auto text = value.value(kLatin1, std::string());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool two = byte >= 0x80 && i + 1 < text.size();
    bytes += two ? static_cast<char>(byte << 6 | (text[++i] & 0x3f)) : text[i];
  }
  return bytes;
}

// Does f(flag, value) of each.
template <class F>
void for_each_flag(const Json& config, F&& f) {
  for (const auto& [group, flags] : config.items())
    if (flags.is_object())
      for (const auto& [flag, value] : flags.items()) f(flag, value);
}

// As its JSON; empty: there is none.
std::string value_in(const Json& config, const std::string& flag) {
  std::string found;
  for_each_flag(config, [&](const std::string& name, const Json& value) {
    if (name == flag) found = value.dump();
  });
  return found;
}

}  // namespace

Json json_of_path(const std::string& bytes) {
  if (!not_utf8(bytes)) return bytes;
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {  // two bytes of UTF-8
      text += static_cast<char>(0xc0 | byte >> 6);
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return {{kLatin1, text}};
}

std::string Options::to_json() const {
  Options copy = *this;
  Json json, derived = Json::array();
  for (const Flag& flag : flag_table(copy)) {
    if (flag.write) json[in_lower_case(flag.group)][flag.name] = flag.write();
    if (flag.kinds & Flag::Follows && !given.contains(flag.name)) derived.push_back(flag.name);
  }
  json[kDerived] = derived;
  json[kProgram] = program.name;
  return json.dump(2) + "\n";
}

std::string recorded_program(const std::string& config) {
  const Json json = Json::parse(config);
  const auto found = json.find(kProgram);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "train_gpt";
}

std::vector<std::string> recorded_arguments(const std::string& config, bool with_layout) {
  std::vector<std::string> all;
  const std::vector<std::string> layout = flags_of(Flag::Layout);
  for_each_flag(Json::parse(config), [&](const std::string& flag, const Json& value) {
    if (!with_layout && std::find(layout.begin(), layout.end(), flag) != layout.end()) return;
    const std::string text = to_text(value);
    if (!text.empty())
      all.push_back("--" + flag + "=" + text);
    else if (flag == "sample")  // the one text that is empty where somebody said so
      all.insert(all.end(), {"--" + flag, ""});
  });
  return all;
}

std::vector<std::string> derived_flags(const std::string& config) {
  return Json::parse(config).value(kDerived, std::vector<std::string>());
}

std::string recorded_value(const std::string& config, const std::string& flag) {
  return value_in(Json::parse(config), flag);
}

std::vector<ChangedFlag> changed_flags(const std::string& before, const std::string& now) {
  std::vector<ChangedFlag> changes;
  const std::vector<std::string> derived = derived_flags(now);
  const Json old = Json::parse(before);
  for_each_flag(Json::parse(now), [&](const std::string& flag, const Json& value) {
    const std::string earlier = value_in(old, flag);
    if (earlier.empty() || earlier == value.dump()) return;  // or there was no such flag
    const bool follows = std::find(derived.begin(), derived.end(), flag) != derived.end();
    changes.push_back({flag, earlier, value.dump() + (follows ? " (derived)" : "")});
  });
  return changes;
}

std::string where_flags_come_from(const std::string& resumed) {
  return "Flags that were not given are those of config.json of the run in " + resumed +
         "; but where one that says how ranks share the work is given, or other ranks are started, "
         "the others of that kind have their defaults.";
}

std::string layout_set_aside(const std::string& earlier, const Options& options, int argc,
                             const char* const* argv) {
  std::string changes;
  const std::vector<std::string> layout = flags_of(Flag::Layout);
  for (const ChangedFlag& change : changed_flags(earlier, options.to_json()))
    if (std::find(layout.begin(), layout.end(), change.flag) != layout.end() &&
        !is_given("--" + change.flag, argc, argv))
      changes += fmt::format("{}--{} {} (was {})", changes.empty() ? "" : ", ", change.flag,
                             change.now, change.before);
  return changes.empty() ? "" : "How ranks share the work is what was given: also " + changes;
}

std::optional<std::size_t> not_utf8(const std::string& text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (std::size_t i = 0; i < text.size();) {
    utf8proc_int32_t character = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(text.size() - i), &character);
    if (length <= 0) return i;
    i += static_cast<std::size_t>(length);
  }
  return {};
}

std::string shell_words(const std::vector<std::string>& words) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+";
  std::string all;
  for (const std::string& word : words) {
    if (!all.empty()) all += " ";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      all += word;
    } else if (for_terminal(word) == word && word.find_first_of("\n\t") == std::string::npos) {
      all += "'";
      for (const char c : word) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
      all += "'";
    } else {  // bash's and zsh's way to say a byte
      all += "$'";
      for (const char c : word) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\'' || c == '\\')
          all += std::string("\\") + c;
        else
          all += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
      }
      all += "'";
    }
  }
  return all;
}

}  // namespace aisc
