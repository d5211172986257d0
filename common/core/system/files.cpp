#include "common/core/system/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail_file(const std::string& path, const char* what) {
  fail(path + ": " + what + ": " + std::strerror(errno));
}

// A file descriptor that closes itself, for the calls that know no FILE.
struct Descriptor {
  explicit Descriptor(int value_) : value(value_) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
  const int value;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISREG(mode) ? "a regular file" : "a device";
}

}  // namespace

int open_regular_file(const std::string& path, int flags) {
  constexpr mode_t kReadable = 0666;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  const int file = open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC, kReadable);
  struct stat status {};
  const bool known = (file >= 0 ? fstat(file, &status) : stat(path.c_str(), &status)) == 0;
  if (known && !S_ISREG(status.st_mode)) {
    if (file >= 0) close(file);
    fail(path + ": expected a regular file, found " + kind_of(status.st_mode));
  }
  if (file < 0) fail_file(path, writes ? "cannot be written" : "cannot be opened");
  return file;
}

File open_stream(const std::string& path, char mode) {
  const int flags = mode == 'r'   ? O_RDONLY
                    : mode == 'w' ? O_WRONLY | O_CREAT | O_TRUNC
                                  : O_WRONLY | O_CREAT | O_APPEND;
  const int file = open_regular_file(path, flags);
  File stream(fdopen(file, mode == 'r' ? "rb" : mode == 'w' ? "wb" : "ab"), std::fclose);
  if (!stream) {
    close(file);
    throw std::bad_alloc();
  }
  return stream;
}

ReadableFile::ReadableFile(const std::string& path)
    : path_(path), file_(open_regular_file(path, O_RDONLY)) {
  struct stat status {};
  if (fstat(file_, &status) == 0) size_ = status.st_size;
}

ReadableFile::~ReadableFile() { close(file_); }

void ReadableFile::read(std::int64_t begin, void* to, std::size_t count) const {
  for (std::size_t done = 0; done < count;) {
    const ssize_t got = pread(file_, static_cast<char*>(to) + done, count - done,
                              static_cast<off_t>(begin) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file(path_, "cannot be read");
    if (got == 0)
      fail(path_ + ": found its end at byte " +
           std::to_string(begin + static_cast<std::int64_t>(done)) + ", expected " +
           std::to_string(size_) + " bytes: it was cut while it was in use");
    done += static_cast<std::size_t>(got);
  }
}

std::string read_file(const std::string& path) {
  const File file = open_stream(path, 'r');
  std::string bytes;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file.get()))
    bytes.append(buffer, n);
  if (std::ferror(file.get())) fail_file(path, "cannot be read");
  return bytes;
}

void write_file(const std::string& path, const std::string& bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".tmp"), file_(open_stream(temporary_, 'w')) {}

AtomicFile::~AtomicFile() {
  if (!file_) return;
  file_.reset();
  std::remove(temporary_.c_str());
}

void AtomicFile::fail_and_remove(const char* what) {
  const int reason = errno;  // of the call that failed, not of the clearing up
  file_.reset();
  std::remove(temporary_.c_str());
  errno = reason;
  fail_file(path_, what);
}

void AtomicFile::write(const void* bytes, std::size_t count) {
  if (count > 0 && std::fwrite(bytes, 1, count, file_.get()) != count)
    fail_and_remove("cannot be written");
}

void AtomicFile::commit() {
  if (std::fflush(file_.get()) != 0) fail_and_remove("cannot be written");
  if (fsync(fileno(file_.get())) != 0) fail_and_remove("cannot be written to the disk");
  if (std::fclose(file_.release()) != 0) fail_and_remove("cannot be written");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_and_remove("cannot be replaced");
}

void sync_folder(const std::string& folder) {
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY));
  if (opened.value < 0) fail_file(folder, "cannot be opened");
  // Some network file systems cannot do this to a folder and say EINVAL: nothing to be done.
  if (fsync(opened.value) != 0 && errno != EINVAL)
    fail_file(folder, "cannot be written to the disk");
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(open_regular_file(path, O_RDONLY));
  struct stat status {};
  if (fstat(file.value, &status) != 0) fail_file(path, "cannot be read");
  if (status.st_size == 0) return;  // nothing can be mapped; nothing is there
  const auto size = static_cast<std::size_t>(status.st_size);
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (memory == MAP_FAILED) fail_file(path, "cannot be mapped");
  bytes_ = {static_cast<const std::uint8_t*>(memory), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

struct Checksum::State {
  State() : xxh(XXH3_createState()) {
    if (!xxh || XXH3_64bits_reset(xxh) != XXH_OK) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;

void Checksum::add(const void* bytes, std::size_t count) {
  if (count > 0 && XXH3_64bits_update(state_->xxh, bytes, count) != XXH_OK)
    fail("checksum: xxhash refuses its input");
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->xxh); }

std::uint64_t checksum(std::span<const std::uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace aisc
