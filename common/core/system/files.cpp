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

}  // namespace

std::string read_file(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) fail_file(path, "cannot be opened");
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
    : path_(std::move(path)),
      temporary_(path_ + ".tmp"),
      file_(std::fopen(temporary_.c_str(), "wb"), std::fclose) {
  if (!file_) fail_file(temporary_, "cannot be written");
}

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
  const Descriptor file(open(path.c_str(), O_RDONLY));
  if (file.value < 0) fail_file(path, "cannot be opened");
  struct stat status {};
  if (fstat(file.value, &status) != 0) fail_file(path, "cannot be read");
  if (!S_ISREG(status.st_mode)) fail(path + ": cannot be read: this is not a regular file");
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
