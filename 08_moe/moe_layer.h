// A layer of experts in the place of an MLP: router, dispatch, experts, combine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "08_moe/exchange.h"
#include "08_moe/experts.h"
#include "08_moe/gate.h"

namespace aisc {

// x (B, T, C) -> (B, T, C). The router chooses (gate.h); tokens go to their experts, wherever these
// are, and what comes back is added up by the gates. A token that found no room gets 0.
class MoeLayer final : public Layer {
 public:
  struct Options {
    GptExperts experts;
    std::int64_t width, hidden;
    double residual_stddev;
    std::uint64_t seed = 0;  // of the router's noise
  };
  // `ranks`: those that together have all experts; null: this one. `shared`: an expert that all of
  // x's tokens go to; it computes while the others travel. Null: none. Throws Error as Gate and
  // Experts do.
  MoeLayer(const Rank& rank, const std::string& name, const Options& options,
           std::shared_ptr<const ExpertRanks> ranks = nullptr, Samples samples = {},
           std::unique_ptr<Layer> shared = nullptr);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  void keep(Saved& saved, const Dispatch& plan, const Route& route) const;
  void recall(Saved& saved, Dispatch& plan, Route& route) const;
  void show_load(const Route& route) const;

  std::unique_ptr<Communicator> self_;  // of one rank
  std::shared_ptr<const ExpertRanks> ranks_;
  const Samples samples_;
  Gate gate_;
  Experts experts_;
  std::unique_ptr<Layer> shared_;
  mutable CpuDevice host_;  // of the counts that are kept for backward
};

}  // namespace aisc
