// Whole files, read and written so that nothing half-written is ever left under a final name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

namespace aisc {

// Opens a regular file, with flags of open(2), and returns its descriptor. Throws Error with the
// path and the system's reason; also for what is no regular file ("expected a regular file, found a
// named pipe"), which is asked without waiting for anybody at its other end.
int open_regular_file(const std::string& path, int flags);
// The same for the standard library; `mode` is fopen's: "r", "w" or "a".
std::unique_ptr<std::FILE, int (*)(std::FILE*)> open_stream(const std::string& path, char mode);

// The bytes of a regular file. Throws Error with the path and the system's reason.
std::string read_file(const std::string& path);

// A regular file whose bytes are read from any place, by any number of threads. Whoever maps a file
// that is cut meanwhile is killed (SIGBUS); who reads it, is told.
class ReadableFile {
 public:
  explicit ReadableFile(const std::string& path);  // throws Error as open_regular_file()
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;
  ~ReadableFile();

  std::int64_t size() const { return size_; }  // when it was opened
  // Bytes begin .. begin + count - 1. Throws Error: the file has been cut, or cannot be read.
  void read(std::int64_t begin, void* to, std::size_t count) const;

 private:
  std::string path_;
  int file_ = -1;
  std::int64_t size_ = 0;
};

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
