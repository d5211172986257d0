// Which weights go: those of the smallest magnitudes, all at once or a few more each round.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/nn/parameter.h"

namespace aisc {

// Gradual pruning (Zhu and Gupta, "To prune, or not to prune", arXiv 1710.01878, equation 1): the
// share of weights that are gone goes from 0 to `sparsity` in `rounds` rounds, the last of them
// behind step `end`. One round: all at once.
struct PruneSchedule {
  double sparsity = 0;              // 0: nothing goes
  std::int64_t begin = 0, end = 1;  // steps taken
  std::int64_t rounds = 1;

  // Throws Error for a sparsity outside [0, 1), steps that are not 0 <= begin < end, and rounds
  // that are not 1 .. end - begin.
  void validate() const;
};

// The share that is gone behind so many steps:
//   sparsity * (1 - (1 - i / rounds)^3)     with i the rounds that are over: 0 until `begin`, then
// one more with each (end - begin) / rounds steps. The first rounds take most: there are many
// weights then that nobody will miss.
//
// To .8 from step 10 to 30 in two rounds: 0 until step 19, .7 from step 20, .8 from step 30.
double sparsity_at(std::int64_t steps, const PruneSchedule& schedule);

// True of what is pruned, each to the same share: the matrices of blocks. Not of tables, biases and
// norms, which are few numbers or are read row by row; not of routers; not of experts, of which a
// rank has some.
bool can_be_pruned(const Parameter& parameter);

// |w| as F32, its 32 bits read as a whole number. Of two F32 that are not negative the larger has
// the larger bits: keys are in the order of magnitudes, and can be counted by their digits.
inline std::uint32_t magnitude_key(double w) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(std::abs(w)));
}
// Of all weights, on the host, of any floating type.
std::vector<std::uint32_t> magnitude_keys(ConstView weights);

// The search for the key below which so many keys lie, without sorting (radix select): the four
// digits of a key, 8 bits each, are found from the highest to the lowest. For each, all keys that
// begin with the digits found so far are counted by their next digit. Ranks that have parts of a
// matrix add up 256 counts a digit, and all find what one would that has the whole.
struct ThresholdSearch {
  std::int64_t smaller = 0;  // of the keys that begin with `prefix`, so many shall be smaller
  std::uint32_t prefix = 0;  // the digits found so far; the others are 0
  int shift = 24;            // of the next digit: bits shift .. shift + 8; -8: all are found
};
inline constexpr std::size_t kDigits = 256;

// Adds to counts (kDigits), by their next digit, the keys that begin with the digits found so far.
void count_digits(std::span<const std::uint32_t> keys, const ThresholdSearch& search,
                  std::span<std::int64_t> counts);

// Takes the next digit by these counts, whose sum is more than search.smaller.
//
// Counts 3 0 4 1 of digits 0 to 3, and 5 keys shall be smaller: the digit is 2, since 3 keys have
// smaller ones and 7 that or smaller ones; of the 4 that have it, 5 - 3 = 2 shall be smaller.
void narrow(ThresholdSearch& search, std::span<const std::int64_t> counts);

// The largest of the goes + 1 smallest keys: as many as `goes` are smaller, or fewer, since those
// equal to it stay. One key always stays, and `goes` is at most n - 1, whatever is asked for.
std::uint32_t magnitude_threshold(std::span<const std::uint32_t> keys, std::int64_t goes);
// How many of `count` that are, to the nearest whole.
std::int64_t pruned_count(double sparsity, std::int64_t count);

// kept (n), 1 or 0 for each weight: now 0 where the key is below the threshold, too. What is gone
// does not come back.
void prune_below(std::span<const std::uint32_t> keys, std::uint32_t threshold,
                 std::span<std::uint8_t> kept);

// Makes weights (n), on the host, exactly 0 where `kept` (n) is 0.
void apply_mask(View weights, std::span<const std::uint8_t> kept);

// What happens behind the update that makes `steps` steps taken, with a share of `reached` gone
// before it: `mask` makes what is gone 0 again, in every step, since momentum and decay move it;
// where the schedule says more, `prune` takes weights up to that share. Returns the share that is
// gone now.
double behind_update(std::int64_t steps, const PruneSchedule& schedule, double reached,
                     const std::function<void()>& mask,
                     const std::function<void(double sparsity)>& prune);

// All of this once, of one matrix on the host.
void prune_once(View weights, double sparsity);

}  // namespace aisc
