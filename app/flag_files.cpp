#include "app/flag_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "app/flag_table.h"
#include "app/recorded_flags.h"
#include "common/core/error.h"
#include "common/core/system/files.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

// The last value of a flag, "--recipe FILE" or "--recipe=FILE"; empty: it is not given.
std::string last_value(const std::string& flag, int argc, const char* const* argv) {
  std::string found;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == flag && i + 1 < argc) found = argv[++i];
    if (word.starts_with(flag + "=")) found = word.substr(flag.size() + 1);
  }
  return found;
}

// A file, or the name of a recipe of this course.
std::string recipe_at(const std::string& name) {
  const std::string shipped = std::string(AISC_SOURCE_DIR) + "/recipes/" + name + ".json";
  std::error_code error;
  const bool is_name = name.find('/') == std::string::npos && !std::filesystem::exists(name, error);
  return is_name && std::filesystem::exists(shipped, error) ? shipped : name;
}

// The flags of a recipe, each of which the program has.
std::vector<std::string> recipe_flags(const std::string& path, const std::string& text,
                                      const Options& defaults) {
  const nlohmann::json recipe = parse_json(text, path);
  if (!recipe.is_object()) fail(path + ": expected an object of groups of flags");
  const std::string program = recorded_program(text);
  if (program != defaults.program.name)
    fail(fmt::format("--recipe {}: it is of {}, expected one of {}", path, program,
                     defaults.program.name));
  Options options = defaults;
  const std::vector<Flag> flags = flag_table(options);
  for (const auto& [group, values] : recipe.items()) {
    if (values.is_string()) continue;
    if (!values.is_object())
      fail(fmt::format("{}: \"{}\": found {}, expected a group of flags or a text", path, group,
                       shown(values)));
    for (const auto& [name, value] : values.items())
      if (std::none_of(flags.begin(), flags.end(),
                       [&, n = name](const Flag& flag) { return flag.name == n; }))
        fail(fmt::format("{}: \"{}\": {} has no such flag", path, name, program));
  }
  return recorded_arguments(text, true);
}

}  // namespace

FlagFiles::FlagFiles(int argc, const char* const* argv, const Options& defaults) : words_{argv[0]} {
  const auto add = [this](const std::vector<std::string>& more) {
    words_.insert(words_.end(), more.begin(), more.end());
  };
  if (const std::string name = last_value("--recipe", argc, argv); !name.empty()) {
    const std::string path = recipe_at(name), text = read_file(path);
    add(recipe_flags(path, text, defaults));
    about_ = nlohmann::json::parse(text).value("about", std::string());
  }
  if (const std::string path = last_value("--deepspeed-config", argc, argv); !path.empty())
    add(deepspeed_.emplace(path).arguments());
  add({argv + 1, argv + argc});
  for (const std::string& word : words_) pointers_.push_back(word.c_str());
}

}  // namespace aisc
