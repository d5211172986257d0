// What finds no room where a router chooses as dice do: a number for the dropped share that needs
// no training run and no paper.
#pragma once

#include <cstdint>

namespace aisc {

// Each token is sent to one of the experts, all equally likely, independently; each expert has room
// for the mean load C, capacity factor 1. With many experts its load is a Poisson number, and of
// the tokens e^-C C^C / C! are dropped: about 1 / sqrt(2 pi C).
double uniform_dropped_share(std::int64_t mean_load);
// With so many experts, exactly: C E tokens are a binomial number on each, whose mean excess over
// its mean is de Moivre's C (1 - 1/E) times the probability of C. Less by about 1 in 2 E.
double uniform_dropped_share(std::int64_t mean_load, std::int64_t experts);

// Counted: so many samples of C E tokens, drawn by Philox, kept by within_capacity().
double counted_dropped_share(std::int64_t mean_load, std::int64_t experts, std::int64_t samples,
                             std::uint64_t seed);

}  // namespace aisc
