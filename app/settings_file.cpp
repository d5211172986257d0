#include "app/settings_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "app/flag_values.h"
#include "common/core/error.h"
#include "common/core/system/files.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

constexpr std::size_t kDeepest = 8;

// Characters of a text; the lines that were passed are counted.
struct Reading {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  std::int64_t* line;

  reference operator*() const { return *at; }
  Reading& operator++() {
    *line += *at == '\n' ? 1 : 0;
    ++at;
    return *this;
  }
  bool operator==(const Reading& other) const { return at == other.at; }
};

// Takes down what a parser finds. A key has been read to its last quote when it is told, so that
// the line is its own; behind a value the parser may have looked at the next line already.
class Taker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Taker(std::string file, const std::int64_t& line) : file_(std::move(file)), line_(line) {}

  std::vector<std::pair<Setting, bool>> all;

  bool null() override { return value(nullptr); }
  bool boolean(bool found) override { return value(found); }
  bool number_integer(std::int64_t found) override { return value(found); }
  bool number_unsigned(std::uint64_t found) override { return value(found); }
  bool number_float(double found, const std::string&) override { return value(found); }
  bool string(std::string& found) override { return value(found); }
  bool binary(nlohmann::json::binary_t&) override { return value(nullptr); }

  bool start_object(std::size_t) override {
    if (lists_ > 0) return ++lists_, true;  // of a list: no setting has any
    if (open_.size() == kDeepest)
      fail(fmt::format("{}:{}: nested deeper than {} objects", file_, line_, kDeepest));
    open_.push_back({});
    return true;
  }
  bool key(std::string& found) override {
    if (lists_ > 0) return true;
    Object& object = open_.back();
    for (const auto& [name, line] : object.keys)
      if (name == found)
        fail(
            fmt::format("{}:{}: \"{}\" stands twice, first in line {}", file_, line_, found, line));
    object.keys.emplace_back(found, line_);
    return true;
  }
  bool end_object() override {
    if (lists_ > 0) return --lists_, true;
    const bool empty = open_.back().keys.empty();
    open_.pop_back();
    return !empty || open_.empty() || value(nlohmann::json::object());
  }
  bool start_array(std::size_t) override {
    if (open_.empty()) return value(nullptr);
    if (lists_++ == 0) list_ = nlohmann::json::array();
    return true;
  }
  bool end_array() override {
    if (--lists_ > 0) return true;
    return value(std::move(list_));
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    fail(fmt::format("{}:{}: not JSON: {}", file_, line_, e.what()));
  }

 private:
  struct Object {
    std::vector<std::pair<std::string, std::int64_t>> keys;
  };

  bool value(nlohmann::json found) {
    if (lists_ > 0) return list_.push_back(std::move(found)), true;
    if (open_.empty()) fail(fmt::format("{}:{}: expected an object: {{ ... }}", file_, line_));
    std::string key;
    for (const Object& object : open_) key += (key.empty() ? "" : ".") + object.keys.back().first;
    all.push_back({{file_, key, open_.back().keys.back().second, std::move(found)}, false});
    return true;
  }

  std::string file_;
  const std::int64_t& line_;
  std::vector<Object> open_;
  int lists_ = 0;  // lists that are open, and objects in them
  nlohmann::json list_;
};

}  // namespace

std::string Setting::place() const { return fmt::format("{}:{}: {}", file, line, key); }

void Setting::complain(const std::string& why) const { fail(place() + ": " + why); }

void Setting::refuse(const std::string& expected) const {
  complain(fmt::format("found {}, expected {}", shown(value), expected));
}

bool Setting::on() const {
  if (!value.is_boolean()) refuse("true or false");
  return value.get<bool>();
}

std::int64_t Setting::whole(std::int64_t least) const {
  constexpr double kExact = 0x1p53;  // a double has all whole numbers up to it
  const double found = value.is_number() ? value.get<double>() : std::nan("");
  if (!(found >= static_cast<double>(least)) || std::floor(found) != found || found > kExact)
    refuse(fmt::format("a whole number, {} or more", least));
  return static_cast<std::int64_t>(found);
}

double Setting::real(double least) const {
  const double found = value.is_number() ? value.get<double>() : std::nan("");
  if (!(found >= least) || std::isinf(found)) refuse(fmt::format("a number, {} or more", least));
  return found;
}

std::string Setting::text() const {
  if (!value.is_string()) refuse("a text");
  return value.get<std::string>();
}

std::string Setting::one_of(const std::vector<std::string>& words) const {
  if (value.is_string())
    for (const std::string& word : words)
      if (in_lower_case(word) == in_lower_case(value.get<std::string>())) return word;
  refuse(fmt::format("\"{}\"", fmt::join(words, "\" or \"")));
}

SettingsFile::SettingsFile(const std::string& path) : path_(path) {
  const std::string text = read_file(path);
  std::int64_t line = 1;
  Taker taker(path, line);
  const char* begin = text.data();
  nlohmann::json::sax_parse(Reading{begin, &line}, Reading{begin + text.size(), &line}, &taker);
  all_ = std::move(taker.all);
}

std::optional<Setting> SettingsFile::take(const std::string& key) { return take_first_of({key}); }

std::optional<Setting> SettingsFile::take_first_of(const std::vector<std::string>& keys) {
  for (auto& [setting, taken] : all_)
    if (!taken && std::find(keys.begin(), keys.end(), setting.key) != keys.end()) {
      taken = true;
      return setting;
    }
  return {};
}

std::vector<Setting> SettingsFile::left() const {
  std::vector<Setting> left;
  for (const auto& [setting, taken] : all_)
    if (!taken) left.push_back(setting);
  return left;
}

}  // namespace aisc
