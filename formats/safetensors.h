// Safetensors: the format that models are exchanged in (github.com/huggingface/safetensors). Eight
// bytes with the length N of a header, N bytes of JSON (name -> dtype, shape, data_offsets), then
// the tensors' bytes one after the other without holes. Nothing in it is executed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/core/system/files.h"
#include "common/core/tensor.h"

namespace aisc {

// A tensor as the header describes it. Types that this project has no name for (BOOL, I16, F8_E4M3,
// ...) may stand in a file and be listed; they cannot be read.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;                // as in the file: "F32", "BF16", "I64", "BOOL"
  std::vector<std::int64_t> shape;  // any number of dimensions
  std::size_t offset, bytes;        // in the file
};

class Safetensors {
 public:
  static constexpr std::size_t kLargestHeader = 100'000'000;  // as in the reference implementation

  // Maps the file and checks the header against its length: every claim, before it is believed.
  // Throws Error (path, byte offset, found, expected).
  explicit Safetensors(const std::string& path);
  // A file's bytes, which the caller keeps; `name` stands for the path.
  Safetensors(std::span<const std::uint8_t> bytes, std::string name);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in file order
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsEntry* find(const std::string& name) const;  // null: not in the file
  // Throws Error naming the path, the tensor and names that resemble it.
  const SafetensorsEntry& at(const std::string& name) const;

  // Copies a tensor into `to`, host memory of the same shape. Floating types are converted (an F16
  // file into an F32 model), others must be equal. Throws Error naming both shapes or types.
  void read(const std::string& name, View to) const;
  // Elements begin .. begin + to.count() of a tensor of this shape, in the file's order, likewise;
  // of the file no others are touched. Throws Error naming the range that is not in the tensor,
  // too.
  void read_part(const std::string& name, const Shape& shape, std::int64_t begin, View to) const;
  bool equal(const std::string& a, const std::string& b) const;  // same type, shape and bytes

 private:
  void parse();

  std::string path_;
  std::optional<MappedFile> file_;
  std::span<const std::uint8_t> bytes_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t> index_;  // by name, into entries_
  std::map<std::string, std::string> metadata_;
};

struct SafetensorsSpec {
  std::string name;
  DType dtype;
  Shape shape;
};

// The bytes of a file before its data, which is these tensors' in their order. `path` is for
// errors. Throws Error: two tensors of one name.
std::string safetensors_header(const std::string& path, const std::vector<SafetensorsSpec>& specs,
                               const std::map<std::string, std::string>& metadata = {});

// Writes a file tensor by tensor, so that no second copy of a model is needed. Appears under its
// name with commit(), whole, or not at all.
class SafetensorsWriter {
 public:
  // Throws Error: two tensors of one name, an unwritable path.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> specs,
                    const std::map<std::string, std::string>& metadata = {});

  // The next tensor, in the order of the specs, in host memory. Throws Error if it is not the one
  // promised.
  void append(ConstView value);
  void commit();  // throws Error if tensors are missing

 private:
  std::string path_;
  std::vector<SafetensorsSpec> specs_;
  std::size_t next_ = 0;
  AtomicFile file_;
};

}  // namespace aisc
