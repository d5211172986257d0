// What the three ways have in common: thread t fills its chunk, from its first element to its last.
#include "01_mutex_mae/random.h"

#include <array>
#include <mutex>

#include "01_mutex_mae/mae.h"
#include "common/core/rng.h"

namespace aisc {

double uniform(std::mt19937_64& generator) {
  return static_cast<double>(generator() >> 11) * 0x1p-53;
}

void fill_locked(std::span<double> out, std::uint64_t seed, Team& team, CountedMutex& mutex) {
  // LAB 01.11: fill_locked
  // > One generator, which all threads use. A call changes its state: who may call, and when?
  std::mt19937_64 generator(seed);
  team.run([&](int thread) {
    const Range mine = chunk(std::ssize(out), thread, team.size());
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::lock_guard lock(mutex);
      out[static_cast<std::size_t>(i)] = uniform(generator);
    }
  });
  // END LAB 01.11
}

void fill_per_thread(std::span<double> out, std::uint64_t seed, Team& team) {
  // LAB 01.11: fill_per_thread
  // > Each thread makes a generator of its own. What must go into its seed?
  team.run([&](int thread) {
    std::seed_seq words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                        static_cast<std::uint32_t>(thread)};
    std::mt19937_64 generator(words);
    const Range mine = chunk(std::ssize(out), thread, team.size());
    for (std::int64_t i = mine.begin; i < mine.end; ++i)
      out[static_cast<std::size_t>(i)] = uniform(generator);
  });
  // END LAB 01.11
}

void fill_counter(std::span<double> out, std::uint64_t seed, Team& team) {
  // LAB 01.11: fill_counter
  // > No state at all: element i is a function of (seed, i). A block of Philox is four numbers.
  const Philox random(seed, "uniform");
  team.run([&](int thread) {
    const Range mine = chunk(std::ssize(out), thread, team.size());
    std::array<std::uint32_t, 4> words{};
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const auto k = static_cast<std::size_t>(i);
      if (i == mine.begin || k % 4 == 0) words = random.block(k / 4);
      out[k] = words[k % 4] * 0x1p-32;
    }
  });
  // END LAB 01.11
}

}  // namespace aisc
