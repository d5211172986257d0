// A layer of experts in the place of an MLP: router, dispatch, experts, combine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "08_moe/balance.h"
#include "08_moe/dispatch.h"
#include "08_moe/exchange.h"
#include "08_moe/experts.h"
#include "08_moe/router.h"
#include "08_moe/samples.h"

namespace aisc {

// x (B, T, C) -> (B, T, C). A linear layer without bias, "router.weight" (E, C), gives the logits;
// the router chooses; tokens go to their experts, wherever these are, and what comes back is added
// up by the gates. A token that found no room gets 0.
//
// Capacity is for training: where nothing is learnt, and where text is generated, every choice
// counts.
class MoeLayer final : public Layer {
 public:
  struct Options {
    GptExperts experts;
    std::int64_t width, hidden;
    double residual_stddev;
    std::uint64_t seed = 0;  // of the router's noise
  };
  // `ranks`: those that together have all experts; null: this one. `shared`: an expert that all
  // of x's tokens go to; it computes while the others travel. Null: none. Throws Error for a router
  // that there is not.
  MoeLayer(const Rank& rank, const std::string& name, const Options& options,
           std::shared_ptr<const ExpertRanks> ranks = nullptr, Samples samples = {},
           std::unique_ptr<Layer> shared = nullptr);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  // What goes where; the choices of whole samples (B T k).
  Dispatch plan_of(std::span<const std::int32_t> experts, const Shape& choices,
                   const Samples::Own& own, const Pass& pass) const;
  void keep(Saved& saved, const Dispatch& plan, const Route& route) const;
  void recall(Saved& saved, Dispatch& plan, Route& route) const;
  Tensor router_backward(Tensor dgates, const Tensor& scores, const Tensor& chosen, const Tensor& x,
                         const Samples::Own& own, Saved& saved, const Pass& pass);

  void add_load(std::span<const std::int32_t> experts, std::int64_t chosen,
                const Samples::Own& own);

  Options options_;
  std::unique_ptr<Communicator> self_;  // of one rank
  std::shared_ptr<const ExpertRanks> ranks_;
  Samples samples_;
  RouterLosses losses_;
  Parameter weight_, bias_;  // bias: of the router that has one
  std::unique_ptr<Router> router_;
  Experts experts_;
  std::unique_ptr<Layer> shared_;
  mutable CpuDevice host_;  // of the counts that are kept for backward
};

}  // namespace aisc
