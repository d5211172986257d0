// The rows of flag_table.cpp, by the type of their values. For .cpp files: fmt stays out of
// contracts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/flag_table.h"
#include "app/flag_values.h"
#include "app/recorded_flags.h"
#include "common/core/flags/command_line.h"

namespace aisc {

// The rows, of one heading after the other.
class FlagRows {
 public:
  std::vector<Flag> all;

  // What follows is of these kinds.
  void group(std::string name, unsigned kinds = 0) {
    group_ = std::move(name);
    kinds_ = kinds;
  }

  Flag& add(Flag flag) {
    flag.group = group_;
    flag.kinds = kinds_;
    return all.emplace_back(std::move(flag));
  }

  template <class T>
  Flag& number(const char* name, T& value, std::int64_t least, std::int64_t most,
               const char* help) {
    return add({.name = name,
                .help = help,
                .type = "INT",
                .standard = std::to_string(value),
                .read =
                    [=, &value](const std::string& text) {
                      value = static_cast<T>(
                          whole_number(fmt::format("--{}", name), text, least, most));
                    },
                .write = [&value] { return value; }});
  }

  Flag& real(const char* name, double& value, const char* help) {
    return add({.name = name,
                .help = help,
                .type = "FLOAT",
                .standard = fmt::format("{}", value),
                .read =
                    [=, &value](const std::string& text) {
                      value = real_number(fmt::format("--{}", name), text);
                    },
                .write = [&value] { return value; }});
  }

  Flag& text(const char* name, std::string& value, const char* help,
             std::vector<std::string> choices = {}) {
    return add({.name = name,
                .help = help,
                .type = "TEXT",
                .standard = value,
                .choices = std::move(choices),
                .read = [&value](const std::string& found) { value = found; },
                .write = [&value] { return value; }});
  }

  Flag& path(const char* name, std::string& value, const char* help) {
    Flag& flag = text(name, value, help);
    flag.is_path = true;
    flag.write = [&value] { return json_of_path(value); };
    return flag;
  }

  Flag& dtype(const char* name, DType& value, const char* help) {
    return add({.name = name,
                .help = help,
                .type = "TYPE",
                .standard = in_lower_case(name_of(value)),
                .choices = {"f64", "f32", "bf16", "f16"},
                .read = [&value](const std::string& found) { value = parse_dtype(found); },
                .write = [&value] { return in_lower_case(name_of(value)); }});
  }

  // One of two words.
  Flag& either(const char* name, bool& value, const char* no, const char* yes, const char* help) {
    return add({.name = name,
                .help = help,
                .type = "TEXT",
                .standard = value ? yes : no,
                .choices = {no, yes},
                .read = [=, &value](const std::string& found) { value = found == yes; },
                .write = [=, &value] { return value ? yes : no; }});
  }

  Flag& on(const char* name, bool& value, const char* help) {
    return add({.name = name, .help = help, .is_on = &value});
  }

 private:
  std::string group_;
  unsigned kinds_ = 0;
};

}  // namespace aisc
