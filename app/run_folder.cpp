#include "app/run_folder.h"

#include <fmt/chrono.h>

#include <ctime>
#include <filesystem>

#include "common/core/error.h"
#include "formats/checkpoint.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

// Makes PARENT/NAME, or NAME_2 ... where it is there. create_directory tells whether it was this
// call that made the folder, so two runs that start in the same second get one each.
std::string made_in(const std::string& parent, const std::string& name, const char* advice = "") {
  const std::string base = parent + "/" + name;
  std::error_code error;
  fs::create_directories(parent, error);
  std::string path = base;
  for (int i = 2; !error && !fs::create_directory(path, error); ++i)
    path = fmt::format("{}_{}", base, i);
  if (error) fail(path + ": cannot be made: " + error.message() + advice);
  return path;
}

}  // namespace

std::string make_run_folder(const std::string& path) {
  if (path.empty())
    return made_in("runs", fmt::format("{:%Y-%m-%d_%H-%M-%S}", fmt::gmtime(std::time(nullptr))),
                   "; --out names another folder");
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    fail("--out " + path + ": this is a file, expected a folder or nothing");
  if (fs::exists(path, error) && !fs::is_empty(path, error))
    fail("--out " + path + ": the folder is not empty; a run never overwrites what is there");
  fs::create_directories(path, error);
  if (error) fail("--out " + path + ": cannot be made: " + error.message());
  return path;
}

std::string make_superseded_folder(const std::string& run, std::int64_t step) {
  if (checkpoints_after(run + "/checkpoints", step).empty()) return "";
  return made_in(run + "/superseded", fmt::format("after_step_{:06}", step));
}

void supersede_checkpoints(const std::string& run, std::int64_t step, const std::string& folder) {
  for (const std::string& path : checkpoints_after(run + "/checkpoints", step)) {
    std::error_code error;
    fs::rename(path, folder + "/" + fs::path(path).filename().string(), error);
    if (error) fail(path + ": cannot be moved to " + folder + ": " + error.message());
  }
}

}  // namespace aisc
