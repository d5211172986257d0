// A folder that a program makes: whole under its name, or not there.
#pragma once

#include <filesystem>
#include <string>

namespace aisc {

// Dropped without commit(), it leaves nothing. Until then its files are in `path`.tmp.
class NewFolder {
 public:
  // Throws Error if anything is at `path` or `path`.tmp: what is there is never overwritten.
  explicit NewFolder(const std::string& path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  // Makes the folder for the files, and those above it; returns its path. Throws filesystem_error.
  std::string make();
  void commit();  // it appears, when the disk has its files; throws likewise

 private:
  std::filesystem::path path_, temporary_;
  bool made_ = false;
};

}  // namespace aisc
