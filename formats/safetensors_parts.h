// A safetensors file that several ranks write together, threads or processes: one makes it, then
// each writes elements of its own. Nobody has all of it in memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace aisc {

class SafetensorsParts {
 public:
  // Makes the file, in its full length: the header, and zeros for all that is not written. Under
  // its own name: until all have written it must lie where nobody takes it for whole, as a
  // checkpoint's folder does (CheckpointWriter). Throws Error with the system's reason, and leaves
  // no file: one of that name is there, the folder is not, the disk has no room; two tensors of one
  // name.
  static void create(const std::string& path, const std::vector<SafetensorsSpec>& specs,
                     const std::map<std::string, std::string>& metadata = {});

  // Opens what create() has made. Throws Error: not there, not such a file, read-only.
  explicit SafetensorsParts(const std::string& path);
  SafetensorsParts(const SafetensorsParts&) = delete;
  SafetensorsParts& operator=(const SafetensorsParts&) = delete;
  ~SafetensorsParts();

  // Elements begin .. begin + values.count() of a tensor, in row-major order; `values` lies on the
  // host and has the tensor's type. Throws Error naming the tensor, what was found and what
  // expected, or the system's reason (a full disk).
  void write(const std::string& name, std::int64_t begin, ConstView values);
  // Has the disk confirm what was written; nothing can be written after it. Throws Error.
  void close();

 private:
  const std::string path_;
  std::map<std::string, SafetensorsEntry> entries_;  // by name
  int file_ = -1;
};

}  // namespace aisc
