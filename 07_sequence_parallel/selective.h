// Selective recomputation: what is large and cheap to make is made again (Korthikanti et al., arXiv
// 2205.05198, section 5), as far as a budget makes that necessary (appendix C).
#pragma once

#include "common/train/step_parts.h"

namespace aisc {

// Around a core of attention: keeps the core's input alone, 6 s b h bytes in 16 bits, and runs it
// forward again in backward, with Pass::recompute. Where Pass::kept has room for what the core
// keeps, all of that is kept in place of the input, and nothing is made again: the first
// micro-batches of a pipeline, as many as fit, and later ones as soon as those are done. Dropout
// draws by position, so that all gradients have the same bits, kept or not. A core that
// communicates does so again in its second forward: its ranks must find the same room, with inputs
// of equal sizes.
class SelectiveCore final : public Layer {
 public:
  SelectiveCore(const Rank& rank, std::unique_ptr<Layer> core)
      : Layer(rank, core->name()), core_(std::move(core)) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return core_->parameters(); }

 private:
  std::unique_ptr<Layer> core_;
};

// For a Trainer whose config.recompute says `core`.
StepParts selective_recomputation(StepParts parts = {});

}  // namespace aisc
