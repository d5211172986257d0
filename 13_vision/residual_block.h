// A block of a residual network (He, Zhang, Ren, Sun, "Deep residual learning for image
// recognition", 2016): what two convolutions add to their input.
#pragma once

#include <memory>

#include "13_vision/convolution_layer.h"
#include "13_vision/image_norm.h"

namespace aisc {

// The ranks that share a batch, and what they do with it between two layers.
struct NormOfBatch {
  ImageNorm norm;
  Communicator& batch;
};

// Filters, their norm and a ReLU where it says so, as one layer; images get the sizes of y.
enum class Ends { Linear, Relu };
std::unique_ptr<Layer> make_filters(const Rank& rank, const std::string& name, ImageSize& images,
                                    std::int64_t out, std::int64_t size, std::int64_t stride,
                                    const NormOfBatch& norm, Ends ends);

// y = relu(path(x) + shortcut(x)). The path is two 3 x 3 convolutions, each with its norm, the
// first with a ReLU behind it, and with the block's stride. The shortcut is x itself, or where the
// sizes differ a 1 x 1 convolution of that stride, with a norm (section 3.3, option B).
class ResidualBlock final : public Layer {
 public:
  // `images` are the sizes of x, afterwards of y: (N, C, H, W) -> (N, out, I, J) of which I is
  // (H - 1) / stride + 1, and J alike.
  ResidualBlock(const Rank& rank, const std::string& name, ImageSize& images, std::int64_t out,
                std::int64_t stride, const NormOfBatch& norm);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;
  bool has_shortcut() const { return shortcut_ != nullptr; }

 private:
  std::unique_ptr<Layer> path_, shortcut_, relu_;  // shortcut_ null: x itself
};

}  // namespace aisc
