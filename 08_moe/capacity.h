// How many tokens an expert takes, and which of those that want it stay out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aisc {

// The tokens of one sample that an expert has room for: ceil(factor k T / E), at least 1, at most T
// (Fedus et al., "Switch Transformers", section 2.2: capacity factor). 0 for `factor`: all T.
//
// By sample and not by micro-batch: which tokens are dropped then depends on nothing but their own
// sample, and every layout of ranks and micro-batches drops the same.
std::int64_t expert_capacity(double factor, std::int64_t tokens, std::int64_t chosen,
                             std::int64_t experts);

// Which of the choices of one sample, experts (T, k), -1 for none, its experts have room for: 1, or
// 0 for dropped. Experts take the first choices of all tokens before any second one, each in the
// order of the tokens (GShard, arXiv 2006.16668, algorithm 1).
//
// Three tokens that choose 0 1, 0 1 and 0 1, with room for two: 1 1, 1 1, 0 0.
std::vector<std::uint8_t> within_capacity(std::span<const std::int32_t> experts,
                                          std::int64_t chosen, std::int64_t expert_count,
                                          std::int64_t capacity);

}  // namespace aisc
