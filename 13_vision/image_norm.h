// The norms that a layer of images may have behind it: which of them know how many ranks there are?
#pragma once

#include <memory>

#include "13_vision/batch_norm.h"
#include "common/nn/layer_norm.h"

namespace aisc {

struct ImageSize {
  std::int64_t channels = 1, height = 1, width = 1;
  std::int64_t count() const { return channels * height * width; }
};

enum class ImageNorm {
  None,
  Batch,      // over a rank's images: another function for each number of ranks
  SyncBatch,  // over the images of all ranks
  Layer       // over an image's own elements: no other image matters, and so no rank
};

// Layer normalisation of an image: all C H W elements of it together, each with a weight and a bias
// of its own (Ba, Kiros, Hinton, 2016, section 6.7 has them over convolutions).
class WholeImageNorm final : public Layer {
 public:
  WholeImageNorm(const Rank& rank, const std::string& name, const ImageSize& size)
      : Layer(rank, name), norm_(rank, name, size.count()) {}

  // x (N, C, H, W) of that size. Throws Error for another one.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return norm_.parameters(); }

 private:
  LayerNorm norm_;  // of rows (N, C H W)
};

// A norm for x (N, C, H, W) of this size; null for None. The ranks of SyncBatch are `batch`, which
// outlives it.
std::unique_ptr<Layer> make_image_norm(const Rank& rank, const std::string& name, ImageNorm norm,
                                       const ImageSize& size, Communicator& batch);

}  // namespace aisc
