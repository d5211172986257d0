// What grows with the number of experts and what does not: weights of published models, bytes of a
// device, FLOPs of a token. All without memory and without numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace aisc {

// A translation model of GShard's table (Lepikhin et al., arXiv 2006.16668): every other layer has
// experts of 1024 columns and 8192 hidden ones, one expert a core.
struct GshardModel {
  const char* name;
  std::int64_t experts, layers;
  double weights;  // published, as rounded there
  double bleu;     // the mean over languages; a dense baseline for each language: 30.8
};
std::span<const GshardModel> gshard_models();  // six
// The weights of all its experts, as Experts declares them, and of those of one core.
struct ExpertWeights {
  std::int64_t all, of_a_core;
};
ExpertWeights expert_weights(const GshardModel& model);

// Of one of so many ranks after a step of training, by its ledger: bytes at rest, and the peak of
// all. A GPT of 4 blocks of 256 columns, experts in every other one, 2 samples a rank, F32, AdamW.
struct RankBytes {
  std::int64_t weights, gradients, optimizer, peak;
};
// ep: ranks that share the experts; all `ranks`, or 1: every rank has all experts.
RankBytes bytes_of_a_rank(int ranks, int ep, std::int64_t experts);

// FLOPs of a token in forward and backward of a layer of experts alone, as operations are charged.
struct TokenFlops {
  double products;  // of matrices: 48 C^2 for each expert it is sent to, 6 C E of the router
  double others;    // the choice among E, what is sorted, added and normalized
};
TokenFlops flops_of_a_token(const std::string& router, std::int64_t experts, std::int64_t width);

}  // namespace aisc
