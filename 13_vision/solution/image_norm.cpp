#include "13_vision/image_norm.h"

namespace aisc {

Tensor WholeImageNorm::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const Shape shape = x.shape();
  Tensor rows = std::move(x).reshaped({shape[0], shape[1] * shape[2] * shape[3]});
  return norm_.forward(std::move(rows), saved, pass).reshaped(shape);
}

Tensor WholeImageNorm::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const Shape shape = dy.shape();
  Tensor rows = std::move(dy).reshaped({shape[0], shape[1] * shape[2] * shape[3]});
  return norm_.backward(std::move(rows), saved, pass).reshaped(shape);
}

std::unique_ptr<Layer> make_image_norm(const Rank& rank, const std::string& name, ImageNorm norm,
                                       const ImageSize& size, Communicator& batch) {
  switch (norm) {
    case ImageNorm::None:
      return nullptr;
    case ImageNorm::Layer:
      return std::make_unique<WholeImageNorm>(rank, name, size);
    default: {
      Communicator* const ranks = norm == ImageNorm::SyncBatch ? &batch : nullptr;
      return std::make_unique<BatchNorm>(rank, name, size.channels,
                                         BatchNorm::Options{.batch = ranks});
    }
  }
}

}  // namespace aisc
