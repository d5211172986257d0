// Flags' values: numbers, what they may be at most, and types. For the files of options.h.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/dtype.h"
#include "common/core/flags/command_line.h"

namespace aisc {

// Larger ones are mistakes, or would overflow what is computed from them.
inline constexpr std::int64_t kMostSize = 1'000'000, kMostCount = 1'000'000'000;
inline constexpr std::int64_t kMostLayers = 10'000;
inline constexpr std::int64_t kMostElements = 1'000'000'000'000'000;

// CLI11's own take what is too large for the largest, and a zero in front for the base 8.
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& flag, T& value, std::int64_t least,
                        std::int64_t most, const std::string& help) {
  return app
      .add_option_function<std::string>(
          flag,
          [=, &value](const std::string& text) {
            value = static_cast<T>(whole_number(flag, text, least, most));
          },
          help)
      ->default_str(std::to_string(value))
      ->type_name("INT");
}

inline CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value,
                               const std::string& help) {
  return app
      .add_option_function<std::string>(
          flag, [=, &value](const std::string& text) { value = real_number(flag, text); }, help)
      ->default_str(fmt::format("{}", value))
      ->type_name("FLOAT");
}

// As a flag's value.
inline std::string lower_name(DType dtype) {
  std::string name = name_of(dtype);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// Is the flag on this command line, not in an earlier run's config.json?
inline bool is_given(const std::string& flag, int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [&](const std::string_view word) {
    return word == flag || word.starts_with(flag + "=");
  });
}

}  // namespace aisc
