// Batch normalisation: each channel less its mean, divided by its spread, over a batch (Ioffe,
// Szegedy, "Batch normalization", 2015, algorithms 1 and 2).
#pragma once

#include "13_vision/channel_moments.h"
#include "common/nn/layer.h"

namespace aisc {

// y = (x - mean) / sqrt(variance + epsilon) weight + bias, channel by channel.
//
// In training mean and variance are the batch's, over N, H, W; the variance is that of these values
// (divided by their count n). They move the running ones by `momentum`, whose variance is
// estimated for all images (divided by n - 1), as PyTorch does. Outside training the running ones
// are taken, and stay as they are.
//
// Ranks that each have a share of a batch are one of two things. By itself (`batch` null) each has
// the statistics of its own images: another function than that of one rank, and another one for
// each number of ranks, with running statistics of each rank's own. With `batch`, the ranks that
// share a batch, forward and backward take the sums over all of them (SyncBatchNorm): outputs,
// gradients and running statistics are those of one rank with the whole batch. The gradients of
// weight and bias are then, as those of every layer, of this rank's images: data parallelism adds
// them up.
//
// With `batch` forward in training and its backward are collective on it and block; each rank calls
// them as often, whether it has images or not. Bytes sent per rank and call, each of n ranks:
//   forward   (n - 1)/n all-gather's  n (2 C + 1) 8,   backward  all-reduce's 2 C * 8.
class BatchNorm final : public Layer {
 public:
  struct Options {
    double momentum = 0.1, epsilon = 1e-5;  // PyTorch's figures
    Communicator* batch = nullptr;          // outlives the layer; null: this rank's images alone
  };

  // weight (C), 1; bias (C), 0; running mean 0 and variance 1.
  BatchNorm(const Rank& rank, const std::string& name, std::int64_t channels,
            const Options& options);

  // x (N, C, H, W). A forward that is repeated (Pass::recompute) does not move the running
  // statistics. Throws Error for another x, and in training for one value a channel, or none, which
  // has no spread: on all ranks of `batch`, since they count alike.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

  // (C) F64 each: no parameters, since no gradient moves them, but part of what was learnt.
  View running_mean() const { return running_.rows(0, 1).reshaped(weight_.shape); }
  View running_variance() const { return running_.rows(1, 2).reshaped(weight_.shape); }

 private:
  Tensor statistics(ConstView x, const Pass& pass) const;

  Options options_;
  Parameter weight_, bias_;
  Tensor running_;  // (2, C) F64: a forward in training moves what it refers to
};

}  // namespace aisc
