// Random numbers for threads, three ways. Each fills `out` with uniform numbers of [0, 1).
#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "01_mutex_mae/team.h"

namespace aisc {

// The generators here: std::mt19937_64, and as number its upper 53 bits: (bits >> 11) * 2^-53.
double uniform(std::mt19937_64& generator);

// One generator, seeded with `seed`, which all threads share behind `mutex`: one lock a number.
// Thread t fills chunk(out.size(), t, T) in order. As a set the numbers are those of one thread;
// who gets which is by chance.
void fill_locked(std::span<double> out, std::uint64_t seed, Team& team, CountedMutex& mutex);

// A generator for each thread, of thread t seeded with std::seed_seq{low word of seed, high word of
// seed, t}. Thread t fills its chunk in order. Fast, and the same in every run with as many
// threads; with another number of threads all is different.
void fill_per_thread(std::span<double> out, std::uint64_t seed, Team& team);

// Number i is Philox(seed, "uniform").uniform(i) (common/core/rng.h): nothing is kept from number
// to number, so nothing is shared, and any number of threads gives the same.
void fill_counter(std::span<double> out, std::uint64_t seed, Team& team);

}  // namespace aisc
