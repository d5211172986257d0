// The router of a layer on ranks that share samples: from a rank's rows to what is sent where.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "08_moe/balance.h"
#include "08_moe/dispatch.h"
#include "08_moe/router.h"
#include "08_moe/samples.h"

namespace aisc {

// Of the n own rows of an x, and of the samples that they are of.
struct Routed {
  Dispatch dispatch;
  Tensor gates;                     // (n, k)
  Tensor scores;                    // (B, T, E) of whole samples
  std::vector<double> first;        // (B E): first_choices()
  double choices = 0, dropped = 0;  // of whole samples: those made, and those without room
};

// A linear layer without bias, "router.weight" (E, C), gives logits; ranks gather those of whole
// samples, and each chooses and plans for all of them. Capacity is for training: where nothing is
// learnt, and where text is generated, every choice counts.
class Gate {
 public:
  // Throws Error for a router that there is not. `samples` must outlive it. `seed`: of noise.
  Gate(const Rank& rank, const std::string& name, const GptExperts& experts, std::int64_t width,
       std::uint64_t seed, const Samples& samples);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // x (n, C): own rows. Collective among the ranks that share samples.
  Routed route(const Tensor& x, const Samples::Own& own, Saved& saved, const Pass& pass) const;
  // Adds to pass.extra, once for each sample: what the router adds to the loss, and what it did.
  void report(const Routed& routed, const Pass& pass) const;
  // dx (n, C) through the logits, from dgates (n, k) and the losses.
  Tensor backward(Tensor dgates, const Tensor& x, const Samples::Own& own, Saved& saved,
                  const Pass& pass);
  std::vector<Parameter*> parameters();

 private:
  void plan(Routed& routed, const Choices& choices, std::span<const std::int32_t> experts,
            const Samples::Own& own, const Pass& pass) const;
  void add_load(std::span<const std::int32_t> experts, std::int64_t chosen,
                const Samples::Own& own);

  Rank rank_;
  std::string name_;
  GptExperts experts_;
  const Samples& samples_;
  RouterLosses losses_;
  Parameter weight_, bias_;  // bias: of the router that has one
  std::unique_ptr<Router> router_;
};

}  // namespace aisc
