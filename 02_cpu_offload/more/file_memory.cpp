#include "02_cpu_offload/more/file_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/core/error.h"
#include "common/core/tensor.h"

namespace aisc {
namespace {

constexpr std::size_t kLeastInFile = std::size_t{1} << 20;  // smaller blocks are ordinary memory

std::string because() { return std::strerror(errno); }

// A file without a name.
int open_in(const std::string& folder) {
  std::string path = folder + "/aisc-tier-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0)
    fail(fmt::format("--tier disk:{}: no file can be made there: {}", folder, because()));
  unlink(path.c_str());
  return file;
}

std::string free_in(const std::string& folder) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return "?";
  return fmt::format("{}", disk.f_bavail * disk.f_frsize);
}

}  // namespace

FileMemory::FileMemory(const std::string& folder, int threads, std::size_t page)
    : Device(0), page_(page), folder_(folder), name_("disk:" + folder), file_(open_in(folder)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

FileMemory::~FileMemory() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    wishes_.clear();
  }
  asked_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  end_extensions();
  trim();
  close(file_);
}

void* FileMemory::do_allocate(std::size_t bytes) {
  if (bytes < kLeastInFile) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  const auto whole = static_cast<std::int64_t>((bytes + page_ - 1) / page_ * page_);
  const std::lock_guard lock(mutex_);
  // A hole that was this large, or the end.
  const auto hole = std::find_if(free_.begin(), free_.end(),
                                 [&](const auto& range) { return range.second == whole; });
  const std::int64_t begin = hole != free_.end() ? hole->first : end_;
  if (const int error = posix_fallocate(file_, begin, whole); error != 0)
    fail(fmt::format("{}: no room for {} bytes, {} are free: {}", name_, whole, free_in(folder_),
                     std::strerror(error)));
  void* const block = mmap(nullptr, static_cast<std::size_t>(whole), PROT_READ | PROT_WRITE,
                           MAP_SHARED, file_, begin);
  if (block == MAP_FAILED)
    fail(fmt::format("{}: {} bytes cannot be mapped: {}", name_, whole, because()));
  madvise(block, static_cast<std::size_t>(whole), MADV_RANDOM);  // what comes ahead is asked for
  if (hole != free_.end())
    free_.erase(hole);
  else
    end_ += whole;
  char* const first = static_cast<char*>(block);
  blocks_[first] = {first, static_cast<std::size_t>(whole), begin};
  return block;
}

void FileMemory::do_free(void* block) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = blocks_.find(static_cast<char*>(block));
  if (found == blocks_.end()) {
    std::free(block);
    return;
  }
  const Range range = found->second;
  // Nobody reads ahead, or writes back, what is no longer there.
  std::erase_if(wishes_, [&](const Wish& wish) {
    return wish.range.begin >= range.begin && wish.range.begin < range.begin + range.bytes;
  });
  done_.wait(lock, [&] { return busy_ == 0; });
  munmap(range.begin, range.bytes);
  free_[range.in_file] = static_cast<std::int64_t>(range.bytes);
  blocks_.erase(found);
}

Work FileMemory::do_copy(View to, ConstView from, Queue /*queue*/) {
  if (from.count() > 0) std::memmove(to.raw(), from.raw(), from.bytes());
  return Work();
}

void FileMemory::do_zero(void* block, std::size_t bytes) {
  if (bytes > 0) std::memset(block, 0, bytes);
}

void FileMemory::ahead(ConstView view) { ask(view, false); }
void FileMemory::behind(ConstView view) { ask(view, true); }

void FileMemory::ask(ConstView view, bool leaves) {
  if (!view || &view.device() != this) return;
  auto* const begin = static_cast<char*>(const_cast<void*>(view.raw()));
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) fail(std::exchange(failure_, ""));
  auto block = blocks_.upper_bound(begin);
  if (block == blocks_.begin()) return;
  const Range& whole = (--block)->second;
  if (begin >= whole.begin + whole.bytes) return;  // a small one
  // Of what comes all pages it touches; of what goes those that are its own.
  const std::size_t from = static_cast<std::size_t>(begin - whole.begin), to = from + view.bytes();
  const std::size_t first = leaves ? (from + page_ - 1) / page_ * page_ : from / page_ * page_;
  const std::size_t last = leaves ? to / page_ * page_ : std::min(whole.bytes, to + page_ - 1);
  if (first >= last) return;
  wishes_.push_back(
      {leaves,
       {whole.begin + first, last - first, whole.in_file + static_cast<std::int64_t>(first)}});
  asked_.notify_one();
}

void FileMemory::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_.wait(lock, [&] { return ends_ || !wishes_.empty(); });
    if (ends_) return;
    const Wish wish = wishes_.front();
    wishes_.pop_front();
    ++busy_;
    lock.unlock();
    carry_out(wish);
    lock.lock();
    --busy_;
    done_.notify_all();
  }
}

void FileMemory::carry_out(const Wish& wish) {
  const Range& range = wish.range;
  if (!wish.leaves) {
    madvise(range.begin, range.bytes, MADV_WILLNEED);
#ifdef MADV_POPULATE_READ  // since Linux 5.14: now, and not only soon
    madvise(range.begin, range.bytes, MADV_POPULATE_READ);
#endif
    return;
  }
  if (msync(range.begin, range.bytes, MS_SYNC) != 0) {
    const std::string why = because();
    const std::lock_guard lock(mutex_);
    failure_ = fmt::format("{}: {} bytes cannot be written: {}", name_, range.bytes, why);
    return;
  }
  madvise(range.begin, range.bytes, MADV_DONTNEED);
  posix_fadvise(file_, range.in_file, static_cast<off_t>(range.bytes), POSIX_FADV_DONTNEED);
}

void FileMemory::settle() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return busy_ == 0 && wishes_.empty(); });
  if (!failure_.empty()) fail(std::exchange(failure_, ""));
}

std::int64_t FileMemory::file_bytes() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

std::int64_t FileMemory::resident_bytes() const {
  const std::lock_guard lock(mutex_);
  const std::size_t page_of_system = page_bytes();
  std::int64_t pages = 0;
  for (const auto& [begin, range] : blocks_) {
    std::vector<unsigned char> in_memory(range.bytes / page_of_system);
    mincore(range.begin, range.bytes, in_memory.data());
    for (const unsigned char page : in_memory) pages += page & 1;
  }
  return pages * static_cast<std::int64_t>(page_of_system);
}

}  // namespace aisc
