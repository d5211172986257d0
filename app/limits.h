// What a command line may ask for: numbers in their range, and a run that fits into memory.
#pragma once

#include <cstdint>
#include <string>

#include "app/plan.h"

namespace aisc {

// Of `ranks` ranks on the CPU, of which one needs this (app/plan.h), and the tokens of as many
// windows for an evaluation.
struct MemoryRequest {
  NeededBytes needed;
  int ranks = 1;
  std::int64_t eval_tokens = 0;
};
// Throws Error with what is needed and what there is if that does not fit into `available` bytes.
void require_memory(const MemoryRequest& request, std::int64_t available);

// Likewise of the address space of this process alone, whose limit (`ulimit -v`) counts what is
// reserved as well: `threads` stacks, and what libraries and MPI keep. `left` as
// address_space_left() has it.
void require_address_space(const MemoryRequest& request, int threads, std::int64_t left);

// What a run says whose memory ran out all the same: how much it wanted, and what makes it less.
std::string out_of_memory(const MemoryRequest& request);

// While it lives, a std::bad_alloc that nobody can catch, in a library's parallel region say, ends
// the process with this message on the standard error and status 1, in place of an abort. One at a
// time in a process.
class OutOfMemoryReport {
 public:
  explicit OutOfMemoryReport(const std::string& message);
  ~OutOfMemoryReport();
  OutOfMemoryReport(const OutOfMemoryReport&) = delete;
  OutOfMemoryReport& operator=(const OutOfMemoryReport&) = delete;

 private:
  std::string message_;
};

}  // namespace aisc
