// Which text of a pair a token is of, as a vector that is added to the token's.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

// x (B, T, C) + segments[s], s a token's segment, 0 or 1 (Pass::segments; all 0 where that is
// empty); in place (Devlin et al., BERT, arXiv 1810.04805, section 3 and figure 2).
class Segments final : public Layer {
 public:
  static constexpr std::int64_t kCount = 2;

  // segments (2, width) named "segments.weight", drawn N(0, .02). `token_ranks`: those that have
  // 1/t of the tokens each between layers (07_sequence_parallel/g_and_g_bar.h), over whom the
  // gradient is summed, too; null: x is of all of this rank's tokens. They must outlive it.
  Segments(const Rank& rank, std::int64_t width, Communicator* token_ranks = nullptr);

  // Throws Error naming a segment that is not 0 or 1.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&segments_}; }

 private:
  Tensor ids_of(const Tensor& x, const Pass& pass) const;

  Communicator* token_ranks_;
  Parameter segments_;
};

}  // namespace aisc
