// The folder that a run leaves behind.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace aisc {

class RunFolder {
 public:
  // Makes `path` (empty: runs/<UTC time>, with a number behind it if that exists) and its
  // metrics.jsonl. Throws Error, touching nothing, if the folder exists and is not empty: an
  // earlier run is never overwritten.
  explicit RunFolder(const std::string& path);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  // Appends one line to metrics.jsonl and flushes it, so that it survives whatever comes next.
  void append_metrics(const std::string& json_line);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> metrics_;
};

}  // namespace aisc
