// What flags' values look like, and where they stand. For the files of options.h.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "common/core/dtype.h"

namespace aisc {

inline std::string in_lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Is the flag on this command line, not in an earlier run's config.json?
inline bool is_given(const std::string& flag, int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [&](const std::string_view word) {
    return word == flag || word.starts_with(flag + "=");
  });
}

}  // namespace aisc
