#include "formats/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "common/core/error.h"
#include "common/core/system/files.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kManifest = "checkpoint.json";
constexpr std::string_view kPrefix = "step_", kTemporary = ".tmp";

std::string in_hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::uint64_t checksum_of(const std::string& text) {
  return checksum({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

// Steps of "step_000100"; none for other names, temporary ones among them.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char *begin = name.data() + kPrefix.size(), *end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

[[noreturn]] void fail_system(const std::string& path, const char* what,
                              const std::error_code& error) {
  fail(path + ": " + what + ": " + error.message());
}

// A file of the folder itself: no way leads out of it, and the manifest does not list itself.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name != kManifest &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

// json[key] as an unsigned number or a text; `at` names the manifest in errors.
template <class T>
T needed_member(const json& object, const char* key, const std::string& at) {
  const bool fits =
      object.is_object() && object.contains(key) &&
      (std::is_same_v<T, std::string> ? object[key].is_string() : object[key].is_number_unsigned());
  if (!fits)
    fail(fmt::format("{}: \"{}\": expected {}", at, key,
                     std::is_same_v<T, std::string> ? "a text" : "a whole number from 0 on"));
  return object[key].get<T>();
}

std::uint64_t hex_member(const json& object, const char* key, const std::string& at) {
  const std::string text = needed_member<std::string>(object, key, at);
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || stop != text.data() + text.size() || text.size() != 16)
    fail(fmt::format("{}: \"{}\": expected 16 hexadecimal digits", at, key));
  return value;
}

// A checkpoint that goes loses its name first: what a kill then leaves half-removed is none.
void remove_under_another_name(const std::string& path) {
  std::error_code ignored;
  const std::string old = path + ".old" + std::string(kTemporary);
  fs::rename(path, old, ignored);
  fs::remove_all(old, ignored);
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string checkpoints, std::int64_t step)
    : checkpoints_(std::move(checkpoints)),
      temporary_(fmt::format("{}/{}{:06}{}", checkpoints_, kPrefix, step, kTemporary)),
      step_(step) {
  std::error_code error;
  fs::create_directories(checkpoints_, error);
  if (error) fail_system(checkpoints_, "cannot be made", error);
  for (const auto& entry : fs::directory_iterator(checkpoints_, error))
    if (const std::string name = entry.path().filename().string();
        name.starts_with(kPrefix) && name.ends_with(kTemporary))
      fs::remove_all(entry.path(), error);
  fs::create_directory(temporary_, error);
  if (error) fail_system(temporary_, "cannot be made", error);
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

std::string CheckpointWriter::commit(const std::string& state) {
  json manifest{{"format", kFormat}, {"step", step_}, {"state", json::parse(state)}};
  manifest["files"] = json::array();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(temporary_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const MappedFile file(temporary_ + "/" + name);
    manifest["files"].push_back({{"name", name},
                                 {"bytes", file.bytes().size()},
                                 {"checksum", in_hex(checksum(file.bytes()))}});
  }
  manifest["checksum"] = in_hex(checksum_of(manifest.dump()));
  write_file(temporary_ + "/" + kManifest, manifest.dump(2) + "\n");
  sync_folder(temporary_);

  // All of it is on the disk under a temporary name. Whoever is killed between the next two lines
  // leaves older checkpoints, and after the second this one: never a half.
  const std::string path = fmt::format("{}/{}{:06}", checkpoints_, kPrefix, step_);
  std::error_code error;
  remove_under_another_name(path);  // a folder can only take the place of an empty one
  fs::rename(temporary_, path, error);
  if (error) fail_system(path, "cannot be replaced", error);
  temporary_.clear();
  sync_folder(checkpoints_);
  return path;
}

Manifest parse_manifest(const std::string& text, const std::string& name) {
  json j = parse_json(text, name);
  const auto format = needed_member<std::uint64_t>(j, "format", name);
  if (format != kFormat)
    fail(fmt::format("{}: \"format\" is {}, expected {}", name, format, kFormat));
  const std::uint64_t expected = hex_member(j, "checksum", name);
  j.erase("checksum");
  if (const std::uint64_t found = checksum_of(j.dump()); found != expected)
    fail(fmt::format("{}: damaged: checksum {}, expected {}", name, in_hex(found),
                     in_hex(expected)));
  Manifest manifest;
  manifest.step = static_cast<std::int64_t>(needed_member<std::uint64_t>(j, "step", name));
  if (manifest.step < 0) fail(name + ": \"step\" is too large");
  if (!j.contains("state") || !j["state"].is_object())
    fail(name + ": \"state\": expected an object");
  manifest.state = j["state"].dump();
  if (!j.contains("files") || !j["files"].is_array()) fail(name + ": \"files\": expected a list");
  for (const json& file : j["files"]) {
    manifest.files.push_back({needed_member<std::string>(file, "name", name),
                              needed_member<std::uint64_t>(file, "bytes", name),
                              hex_member(file, "checksum", name)});
    if (!is_plain_name(manifest.files.back().name))
      fail(fmt::format("{}: \"{}\" is not the name of a file in this folder", name,
                       manifest.files.back().name));
  }
  return manifest;
}

Checkpoint read_checkpoint(const std::string& path) {
  const std::string manifest_path = path + "/" + kManifest;
  const Manifest manifest = parse_manifest(read_file(manifest_path), manifest_path);
  for (const Manifest::File& expected : manifest.files) {
    const std::string file_path = path + "/" + expected.name;
    const MappedFile file(file_path);
    if (file.bytes().size() != expected.bytes)
      fail(fmt::format("{}: damaged: found {} bytes, expected {}", file_path, file.bytes().size(),
                       expected.bytes));
    if (const std::uint64_t found = checksum(file.bytes()); found != expected.checksum)
      fail(fmt::format("{}: damaged: checksum {}, expected {}", file_path, in_hex(found),
                       in_hex(expected.checksum)));
  }
  return {path, manifest.step, manifest.state};
}

std::vector<std::string> list_checkpoints(const std::string& checkpoints) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error))
    if (const auto step = step_of(entry.path().filename().string()))
      found.emplace_back(-*step, entry.path().string());
  if (error && error != std::errc::no_such_file_or_directory)
    fail_system(checkpoints, "cannot be read", error);
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::optional<Checkpoint> newest_intact(const std::string& checkpoints,
                                        const std::function<void(const std::string&)>& say) {
  for (const std::string& path : list_checkpoints(checkpoints)) {
    try {
      return read_checkpoint(path);
    } catch (const Error& e) {
      say(e.what());
    }
  }
  return std::nullopt;
}

std::vector<std::string> checkpoints_after(const std::string& checkpoints, std::int64_t step) {
  std::vector<std::string> paths = list_checkpoints(checkpoints);
  std::erase_if(paths, [&](const std::string& path) {
    return *step_of(fs::path(path).filename().string()) <= step;
  });
  return paths;
}

void remove_checkpoints(const std::string& checkpoints, std::int64_t step, std::int64_t keep) {
  for (const std::string& path : list_checkpoints(checkpoints)) {
    const bool given_up = *step_of(fs::path(path).filename().string()) > step;
    if (given_up || --keep < 0) remove_under_another_name(path);
  }
}

}  // namespace aisc
