// What ranks tell each other beside their programs' messages: that they have come, failed,
// returned, and what they are doing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/comm/mpi/board.h"

namespace aisc::mpi {

// How the program of a rank ended.
struct Outcome {
  enum class Kind : std::uint8_t {
    Returned,
    Echo,   // threw what another rank's failure made it throw
    Failed  // threw by itself
  } kind = Kind::Returned;
  bool not_implemented = false;
  std::string text{};  // of the exception, with its rank
};

// What a rank is doing, as bytes.
struct State {
  static constexpr int kMostMissing = 32;
  bool finished = false;
  RawCall last_call{}, waits_in{};
  int missing_count = 0;
  int missing[kMostMissing] = {};  // the first, ranks of the world
};

// A message of all kinds; only the part up to the end of the text is sent.
struct Control {
  enum class Kind : std::uint8_t {
    Hello,     // to rank 0: I have come, with these options
    Go,        // from rank 0: all have come; seconds since its clock's origin
    Failure,   // the text; `gone`: the rank whose process is gone, or -1
    Quiet,     // after a failure: none of my receives is open any more
    Finished,  // my program is over: outcome, text
    Ask,       // what are you doing?
    State
  } kind = Kind::Hello;
  Outcome::Kind outcome = Outcome::Kind::Returned;
  bool not_implemented = false, check_calls = false;
  bool has_met = false;  // of a failure: all had come to the launch before it
  int gone = -1;
  std::int64_t next_id = 0, message_bytes = 0;
  std::int64_t origin_nanoseconds = 0, elapsed_nanoseconds = 0;
  mpi::State state{};
  char text[1500] = {};

  void set_text(const std::string& its_text);  // cut if longer
  std::size_t bytes() const;                   // to send
};

}  // namespace aisc::mpi
