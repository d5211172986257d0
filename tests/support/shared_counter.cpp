#include "tests/support/shared_counter.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include "common/core/error.h"
#include "common/core/system/files.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

constexpr std::size_t kLongestPath = 256;
static_assert(std::atomic<int>::is_always_lock_free, "processes share no locks");

std::atomic<int>* map_file(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) fail(std::string("shared counter: ") + path + ": " + std::strerror(errno));
  void* memory =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int error = errno;
  close(file);
  if (memory == MAP_FAILED)
    fail(std::string("shared counter: ") + path + ": " + std::strerror(error));
  return static_cast<std::atomic<int>*>(memory);
}

}  // namespace

// Rank 0 makes a file of zeros and tells its name; once all have mapped it, it needs no name.
SharedCounter::SharedCounter(const Rank& rank) {
  std::optional<TemporaryFolder> folder;
  std::array<char, kLongestPath> path{};
  if (rank.world.rank() == 0) {
    folder.emplace();
    const std::string name = folder->path("counter");
    if (name.size() >= path.size()) fail("shared counter: " + name + " is too long a path");
    write_file(name, std::string(sizeof(std::atomic<int>), '\0'));
    name.copy(path.data(), name.size());
  }
  CpuDevice host;
  const View view(path.data(), {static_cast<std::int64_t>(path.size())}, DType::U8, host);
  rank.world.broadcast(view, 0).wait();  // comm: the file's name
  value_ = map_file(path.data());
  rank.world.barrier();
}

SharedCounter::~SharedCounter() { munmap(value_, sizeof(std::atomic<int>)); }

}  // namespace aisc
