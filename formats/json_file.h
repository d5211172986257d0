// JSON from files that nobody vouches for. For .cpp files: JSON stays out of the contracts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace aisc {

// Parses `text`, which begins at byte `offset` of the file `name`. Throws Error (name, byte): not
// JSON; values nested deeper than 64, on which recursive readers run out of stack; a key that
// stands twice in an object, of which two readers may believe different ones.
nlohmann::json parse_json(std::string_view text, const std::string& name, std::size_t offset = 0);

// A value as it appears in an error: not more of it than a line.
std::string shown(const nlohmann::json& value);

}  // namespace aisc
