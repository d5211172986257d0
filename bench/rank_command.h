// What a benchmark says to the programs that it starts under mpirun: a line for rank 0, which tells
// the others, and answers with a line of numbers or of what went wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace aisc {

// Without pointers, so that ranks can send it as it is.
struct RankCommand {
  enum Kind : std::int64_t {
    End,              // of the input
    Collective,       // "all_reduce 4096 10 ring": 10 calls with 4096 bytes, by that algorithm;
                      // without its name as the program does it by itself
    OverlapWithWork,  // "overlap 4096 10 trace.json": 10 rounds; the file may be left out
    OverlapAsleep     // "overlap_asleep 4096 10"
  };
  std::int64_t kind = End, op = 0, bytes = 0, calls = 0, records = 0;
  char algorithm[96] = {};  // ends with a 0
};

// Rank 0: the next command; `file` is the one that it names, or empty. Throws Error at nonsense.
RankCommand read_command(std::istream& in, std::string& file);

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one of so many calls, after one that is not measured; all ranks begin and end
// together.
template <class Call, class Barrier>
double seconds_per_call(std::int64_t calls, Call call, Barrier barrier) {
  call();
  barrier();
  const double begin = seconds_now();
  for (std::int64_t i = 0; i < calls; ++i) call();
  barrier();
  return (seconds_now() - begin) / static_cast<double>(calls);
}

}  // namespace aisc
