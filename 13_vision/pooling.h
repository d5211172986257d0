// Layers without weights: the largest of a window, the mean of a channel, ReLU, and images as rows.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

// y = max(x, 0), of any shape. Keeps y, which the next layer keeps, too.
class Relu final : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
};

// (N, C, H, W) -> (N, C, H / size, W / size), rounded down: the largest of each size x size window,
// which do not overlap. Its gradient goes to that element alone, of equal ones to the first; rows
// and columns left over at the end get none. Of a window with NaN it is the NaN. Throws Error for
// an x without a window, and one that is no image.
class MaxPool final : public Layer {
 public:
  MaxPool(const Rank& rank, const std::string& name, std::int64_t size)
      : Layer(rank, name), size_(size) {}
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;

 private:
  std::int64_t size_;
};

// (N, C, H, W) -> (N, C): the mean of each channel (Lin, Chen, Yan, "Network in network", 2014,
// section 3.2). Images may have any size: so a head of any size of weights fits.
class GlobalAveragePool final : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
};

// (N, ...) -> (N, the product of the others), and back.
class Flatten final : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
};

}  // namespace aisc
