#include "11_gpt_3d/new_folder.h"

#include <system_error>

#include "common/core/error.h"
#include "common/core/system/files.h"

namespace aisc {

namespace fs = std::filesystem;

NewFolder::NewFolder(const std::string& path)
    : path_(fs::absolute(path).lexically_normal()) {  // "x/" ends with ""
  if (!path_.has_filename()) path_ = path_.parent_path();
  temporary_ = path_.string() + ".tmp";
  for (const fs::path& taken : {path_, temporary_})
    if (fs::exists(fs::symlink_status(taken)))
      fail(path + ": " + taken.string() +
           " is there, expected nothing of that name: what is there is never overwritten");
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (made_) fs::remove_all(temporary_, ignored);
}

std::string NewFolder::make() {
  fs::create_directories(temporary_);
  made_ = true;
  return temporary_.string();
}

void NewFolder::commit() {
  sync_folder(temporary_.string());
  fs::rename(temporary_, path_);
  made_ = false;
  sync_folder(path_.parent_path().string());
}

}  // namespace aisc
