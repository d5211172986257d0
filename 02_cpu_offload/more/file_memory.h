// A third tier: host memory whose content lies in a file, for models that the host has no room for
// (ZeRO-Infinity, Rajbhandari et al., arXiv 2104.07857, section 5.1).
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/core/system/memory.h"
#include "common/model/host.h"

namespace aisc {

// Each block of a megabyte and more is a range of one file that is mapped: whoever reads or writes
// it reads or writes the file, and the system keeps in memory what it has room for. The file has no
// name: it is gone with the process, however that ends, and holds nothing that a checkpoint needs.
//
// Its threads read ranges before they are needed (ahead()) and, when they are done with (behind()),
// write them back and let their memory go. Ranges are whole pages: where one ends inside a page,
// the next one brings that page again. What is neither ahead nor in use takes no memory of the
// host.
class FileMemory final : public Device, public Pager {
 public:
  // In a folder. Throws Error naming it where no file can be made there. Each block takes its room
  // on the disk when it is allocated: a full disk is an Error then, with what is needed and what is
  // free, and not a write that fails later.
  // `page` is the system's, or several of them.
  explicit FileMemory(const std::string& folder, int threads = 2, std::size_t page = page_bytes());
  ~FileMemory() override;

  const char* name() const override { return name_.c_str(); }
  bool is_host() const override { return true; }

  // Both return at once, and are carried out in this order. Views of other memory are left alone.
  // Throw what went wrong in writing back what was asked for before.
  void ahead(ConstView view) override;
  void behind(ConstView view) override;
  void settle();  // until all that was asked for is over; throws what went wrong

  std::int64_t file_bytes() const;      // of all blocks
  std::int64_t resident_bytes() const;  // of these, those in memory

 private:
  struct Range {
    char* begin = nullptr;
    std::size_t bytes = 0;
    std::int64_t in_file = 0;
  };
  struct Wish {
    bool leaves = false;
    Range range;
  };

  void* do_allocate(std::size_t bytes) override;
  void do_free(void* block) noexcept override;
  void do_poison(void* /*block*/, std::size_t /*bytes*/) override {}
  Work do_copy(View to, ConstView from, Queue queue) override;
  void do_zero(void* block, std::size_t bytes) override;

  void ask(ConstView view, bool leaves);
  void work();
  void carry_out(const Wish& wish);

  const std::size_t page_;
  const std::string folder_, name_;
  int file_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable asked_, done_;
  std::map<char*, Range> blocks_;              // by where they begin
  std::map<std::int64_t, std::int64_t> free_;  // of the file: begin and bytes
  std::int64_t end_ = 0;                       // of the file
  std::deque<Wish> wishes_;
  int busy_ = 0;
  bool ends_ = false;
  std::string failure_;
  std::vector<std::thread> threads_;
};

}  // namespace aisc
