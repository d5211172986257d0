// Texts of users and files in messages: what a terminal would obey instead of show is spelt out.
#pragma once

#include <string>
#include <string_view>

namespace aisc {

// `text` with its control characters as \x1b: C0 but \n and \t, DEL, and C1 (U+0080 to U+009F).
// fail() makes every message so.
std::string printable(std::string_view text);

}  // namespace aisc
