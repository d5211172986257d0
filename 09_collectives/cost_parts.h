// What the formulas of algorithms share.
#pragma once

#include <bit>

#include "09_collectives/algorithms.h"

namespace aisc {

// ceil(log2 p) and floor(log2 p), p >= 1.
inline int log2_up(int p) { return std::bit_width(static_cast<unsigned>(p - 1)); }
inline int log2_down(int p) { return std::bit_width(static_cast<unsigned>(p)) - 1; }

// A message of so many bytes on a flat network: a + n b. And the time of adding them: n g.
inline double message_seconds(const Network& network, double bytes) {
  return network.link.latency_seconds + bytes * network.link.seconds_per_byte;
}
inline double adding_seconds(const Network& network, double bytes) {
  return bytes * network.reduce_seconds_per_byte;
}

}  // namespace aisc
