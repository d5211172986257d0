// What a step's time goes to.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace aisc {

// Seconds of one step on one rank; each of its moments is in one of them.
//   Data      samples are made, or waited for
//   Forward   of all micro-batches, with the loss
//   Backward  of all of them, and what is sent meanwhile by others than this thread
//   Reduce    this thread communicates or waits for others: sums of gradients that backward did not
//             hide, shards of weights, messages of a pipeline; and the norm
//   Step      gradients become 0, the update
struct PhaseSeconds {
  enum Phase : std::size_t { Data, Forward, Backward, Reduce, Step, kCount };
  std::array<double, kCount> of{};
  double sum() const;
};
inline constexpr std::array<const char*, PhaseSeconds::kCount> kPhaseNames = {
    "data", "forward", "backward", "reduce", "step"};

// "data 0.1, forward 9.8, backward 18.2, reduce 1.0, step 1.1 ms"
std::string to_string(const PhaseSeconds& seconds);

}  // namespace aisc
