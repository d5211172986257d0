#include "formats/json_file.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "common/core/error.h"

namespace aisc {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& name, std::size_t offset) {
  constexpr int kDeepest = 64;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest)
      fail(fmt::format("{}: JSON nested deeper than {} levels", name, kDeepest));
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed).second)
      fail(fmt::format("{}: \"{}\" stands twice in one object", name, parsed.get<std::string>()));
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& e) {
    const auto* parse = dynamic_cast<const json::parse_error*>(&e);
    fail(fmt::format("{}: byte {}: not JSON: {}", name, offset + (parse ? parse->byte : 0),
                     e.what()));
  }
}

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace aisc
