// What to say about ranks that wait for too long, or for ever: who is missing, and what it did
// instead. The same words on every backend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/call.h"

namespace aisc {

struct PlacedCall {
  Call call;
  std::uint64_t sequence = 0;  // among the collectives of its communicator; messages have none
  std::string communicator;
};

// "barrier #12 on world", "recv(4 x F32) from 3 on dp".
std::string to_string(const PlacedCall& call);

// What one rank does. Ranks are those of the world.
struct RankStatus {
  bool answers = true;    // else the rest is not known
  bool finished = false;  // its program has returned
  std::optional<PlacedCall> last_call;
  std::optional<PlacedCall> waits_in;  // of several the first
};

// What is known of all ranks; asked as far as needed, since there may be thousands.
class RankObserver {
 public:
  virtual ~RankObserver() = default;
  virtual int size() const = 0;
  virtual RankStatus status(int rank) const = 0;
  virtual std::vector<int> missing(int rank) const = 0;  // whose calls it waits for, ascending
};

// `rank` waits. Names a cycle of ranks that wait for each other if there is one, else who has not
// arrived at the end of the chain and what it did last. waited_seconds 0: nobody is left to wait
// for, so no time is told.
std::string diagnose(const RankObserver& ranks, int rank, double waited_seconds);

}  // namespace aisc
