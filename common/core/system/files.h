// Whole files, read and written so that nothing half-written is ever left under a final name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

namespace aisc {

// The bytes of a file. Throws Error with the path and the system's reason.
std::string read_file(const std::string& path);

// Writes `path` whole or not at all, as AtomicFile does. Throws Error; then `path` is untouched.
void write_file(const std::string& path, const std::string& bytes);

// A file that appears under its name complete, on the disk, or not at all: it is written as
// `path`.tmp; commit() has the disk confirm it (fsync) and renames it. Dropped without commit, it
// leaves nothing. All throw Error with the path and the system's reason (a full disk, a folder that
// is read-only).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* bytes, std::size_t count);
  void commit();

 private:
  [[noreturn]] void fail_and_remove(const char* what);

  std::string path_, temporary_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// Has the disk confirm the names in a folder, which a rename inside it changed. Throws Error.
void sync_folder(const std::string& folder);

// A file's bytes without reading them first: the system brings in the pages that are touched and
// drops them under pressure, so a file may be larger than memory. Read only. The file must not be
// cut short while it is open (whoever writes with AtomicFile never does).
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws Error: not a file, unreadable
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

// A 64-bit checksum (XXH3) of bytes that come piece by piece; as fast as memory.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(const void* bytes, std::size_t count);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::uint64_t checksum(std::span<const std::uint8_t> bytes);

}  // namespace aisc
