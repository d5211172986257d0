#include "common/core/system/memory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace aisc {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// What is free, and what the system keeps of files and can drop.
std::int64_t available_bytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:"))
      return std::stoll(line.substr(line.find(':') + 1)) * 1024;  // "MemAvailable:  22000 kB"
  return std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
}

// The least limit of a group and those that it is in. A container may not see the upper ones.
std::int64_t least_limit(const std::string& mount, std::filesystem::path group, const char* name) {
  std::int64_t least = kNoLimit;
  for (;; group = group.parent_path()) {
    std::int64_t limit = 0;
    if (std::ifstream(mount + group.string() + "/" + name) >> limit)  // not a number: "max"
      least = std::min(least, limit);
    if (!group.has_relative_path()) return least;
  }
}

}  // namespace

std::int64_t available_memory(const std::string& root) {
  std::int64_t bytes = available_bytes(root);
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/a/b", or of version 1 "4:memory:/a"
    const std::size_t controllers = line.find(':') + 1, path = line.find(":/") + 1;
    if (controllers == 0 || path == 0) continue;
    const std::string controller = line.substr(controllers, path - 1 - controllers);
    if (controller.empty())
      bytes = std::min(bytes, least_limit(mount, line.substr(path), "memory.max"));
    if (controller == "memory")
      bytes = std::min(bytes,
                       least_limit(mount + "/memory", line.substr(path), "memory.limit_in_bytes"));
  }
  return bytes;
}

std::optional<std::int64_t> address_space_left(const std::string& root) {
  std::int64_t limit = 0, pages = 0;
  std::ifstream limits(root + "/proc/self/limits");
  constexpr const char* kName = "Max address space";
  for (std::string line; std::getline(limits, line);)
    if (line.starts_with(kName) && !(std::istringstream(line.substr(std::string(kName).size())) >>
                                     limit))  // not a number: "unlimited"
      return {};
  if (limit == 0 || !(std::ifstream(root + "/proc/self/statm") >> pages)) return {};
  return std::max<std::int64_t>(0, limit - pages * sysconf(_SC_PAGE_SIZE));
}

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE)); }

}  // namespace aisc
