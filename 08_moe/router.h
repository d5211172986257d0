// Routers: which experts each token is sent to, and how much what they answer counts. One
// interface, a file for each way of choosing.
#pragma once

#include <memory>

#include "common/nn/gpt.h"

namespace aisc {

// Of tokens (B, T) with k choices each, in the order of preference.
struct Choices {
  Tensor experts;  // (B, T, k) I32; -1: none
  Tensor gates;    // (B, T, k): what the expert's answer is multiplied by
  Tensor scores;   // (B, T, E): the logits that they were chosen by, for the losses of balance.h
};

// A router sees whole samples, so that what it does for a sample is the same whatever ranks share
// it. Logits and gates are F32 beside shorter types (F64 for F64): a choice between numbers that
// are nearly equal is what rounding hurts most (Fedus et al., arXiv 2101.03961, section 2.4).
class Router {
 public:
  virtual ~Router() = default;
  // logits (B, T, E).
  virtual Choices choose(const Tensor& logits, Saved& saved, const Pass& pass) const = 0;
  // dlogits from dgates (B, T, k) and dscores (B, T, E), which it may write to: a choice itself has
  // no gradient. Pops what choose() pushed.
  virtual Tensor backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                          const Pass& pass) const = 0;
};

// "switch": the best expert of a softmax (Fedus et al., "Switch Transformers", section 2.1).
std::unique_ptr<Router> make_switch_router();
// "top2": the best two, whose gates are the softmax of the two logits (Lepikhin et al., "GShard",
// arXiv 2006.16668, algorithm 1).
std::unique_ptr<Router> make_top2_router();
// "noisy-top2": in training a normal number, as large as softplus(a second row of logits), is added
// to each logit first (Shazeer et al., arXiv 1701.06538, section 2.1). logits (B, T, 2 E): those of
// the choice, then those of the noise; it is drawn by step, sample and token under `name`.
std::unique_ptr<Router> make_noisy_top2_router(std::string name, std::uint64_t seed);
// "expert-choice": of each sample every expert takes the tokens that want it most, `capacity` of
// them (Zhou et al., arXiv 2202.09368, section 3.2): k is E, and -1 where it did not take the
// token. Even by construction, and not causal: a later token can take an earlier one's place. So it
// cannot generate: throws Error for Pass::cache.
std::unique_ptr<Router> make_expert_choice_router(double capacity);
// "bias": sigmoids; the best two of sigmoid + bias, whose gates are the sigmoids alone over their
// sum (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). `bias` (E) is a parameter of the layer.
std::unique_ptr<Router> make_bias_router(const Parameter& bias);

}  // namespace aisc
