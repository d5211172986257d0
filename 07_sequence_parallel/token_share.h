// What happens to each token for itself, on the rank that has it: norms, dropout, positions.
#pragma once

#include "common/nn/dropout.h"
#include "common/nn/embedding.h"

namespace aisc {

// The gradients of these parameters are of a rank's own tokens: they are summed over the tensor
// ranks, too. Without it each rank would move its copies by another part of the gradient, and the
// copies would drift apart: real projects have shipped that bug.
void sum_over_tokens(std::span<Parameter* const> parameters);
std::unique_ptr<Layer> summed_over_tokens(std::unique_ptr<Layer> layer);

// Dropout of a rank's rows (B, T/t, C): element (b, t, c) is kept or not as on one rank. While
// generating (Pass::cache), when ranks have all tokens, and outside training it is the identity.
class TokenShareDropout final : public Dropout {
 public:
  // tp must outlive it.
  TokenShareDropout(const Rank& rank, Communicator& tp, std::string name, double rate,
                    std::uint64_t seed, Masks masks = Masks::Drawn)
      : Dropout(rank, std::move(name), rate, seed, masks), tp_(tp) {}

 private:
  std::vector<Run> runs(const Tensor& x, const Pass& pass) const override;

  Communicator& tp_;
};

// Positions of a rank's rows.
class TokenSharePositions final : public Positions {
 public:
  TokenSharePositions(const Rank& rank, Communicator& tp, std::int64_t context, std::int64_t width)
      : Positions(rank, context, width), tp_(tp) {
    sum_over_tokens(parameters());
  }

 private:
  Tensor position_ids(const Tensor& x, const Pass& pass) const override;

  Communicator& tp_;
};

}  // namespace aisc
