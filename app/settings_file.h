// A file of settings in JSON that a person writes: each of them knows its line, so that what is
// wrong with it can be told. For .cpp files: JSON stays out of contracts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aisc {

// A value, or a list of them, and its key with those of the objects around it:
// "zero_optimization.stage".
struct Setting {
  std::string file, key;
  std::int64_t line = 0;  // from 1
  nlohmann::json value;

  // The value, where it is of this kind. Throw Error (file, line, key, found, expected).
  bool on() const;
  std::int64_t whole(std::int64_t least) const;  // 1e9 is one, too
  double real(double least) const;
  std::string text() const;
  std::string one_of(const std::vector<std::string>& words) const;  // found in any case of letters
  [[noreturn]] void refuse(const std::string& expected) const;
  [[noreturn]] void complain(const std::string& why) const;  // the same without what was found
  std::string place() const;                                 // "FILE:12: zero_optimization.stage"
};

class SettingsFile {
 public:
  // Throws Error (file, line): not JSON, nested deeper than 8 objects, not an object, or a key that
  // stands twice in one.
  explicit SettingsFile(const std::string& path);

  const std::string& path() const { return path_; }
  // The one of this key, which is no longer left(). An object without any value is one, too.
  std::optional<Setting> take(const std::string& key);
  // Of these keys the one that stands first: one name is as good as another.
  std::optional<Setting> take_first_of(const std::vector<std::string>& keys);
  // The others, in the file's order.
  std::vector<Setting> left() const;

 private:
  std::string path_;
  std::vector<std::pair<Setting, bool>> all_;  // taken?
};

}  // namespace aisc
