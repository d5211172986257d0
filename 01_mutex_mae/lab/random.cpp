// Yours to write; from 01_mutex_mae/solution/random.cpp (stub 00de806c7a8e).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// What the three ways have in common: thread t fills its chunk, from its first element to its last.
#include "01_mutex_mae/random.h"

#include <array>
#include <mutex>

#include "01_mutex_mae/mae.h"
#include "common/core/error.h"
#include "common/core/rng.h"

namespace aisc {

double uniform(std::mt19937_64& generator) {
  return static_cast<double>(generator() >> 11) * 0x1p-53;
}

void fill_locked(std::span<double> out, std::uint64_t seed, Team& team, CountedMutex& mutex) {
  // LAB 01.11: fill_locked
  // One generator, which all threads use. A call changes its state: who may call, and when?
  throw NotImplemented("lab 01.11: fill_locked", __FILE__, __LINE__);
  // END LAB 01.11
}

void fill_per_thread(std::span<double> out, std::uint64_t seed, Team& team) {
  // LAB 01.11: fill_per_thread
  // Each thread makes a generator of its own. What must go into its seed?
  throw NotImplemented("lab 01.11: fill_per_thread", __FILE__, __LINE__);
  // END LAB 01.11
}

void fill_counter(std::span<double> out, std::uint64_t seed, Team& team) {
  // LAB 01.11: fill_counter
  // No state at all: element i is a function of (seed, i). A block of Philox is four numbers.
  throw NotImplemented("lab 01.11: fill_counter", __FILE__, __LINE__);
  // END LAB 01.11
}

}  // namespace aisc
