// waits: which rank of a run waits for which, or came last. See --help.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "11_gpt_3d/waits_report.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

// A run's folder has rank 0's trace, with those of all, and, behind an error, those of the others.
std::vector<std::string> files_at(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("trace.") && name.ends_with(".json"))
      files.push_back(entry.path().string());
  }
  if (files.empty()) fail(path + ": expected trace.json in it, as ./aisc train leaves one");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  std::string path;
  return aisc::program(
      argc, argv,
      "waits reads traces (trace.json, or a run's folder with those of all ranks) and says\n"
      "which rank waits for which, and where to look. ./aisc train --trace N records the calls\n"
      "of N steps from the second on: all up to the one that stands still.",
      [&](aisc::CommandLine& line) {
        line.required("trace", path, "trace.json, or the folder of a run");
      },
      [&] { fmt::print("{}", aisc::waits_report(aisc::files_at(path))); });
}
