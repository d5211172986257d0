#include "common/nn/sequence.h"

namespace aisc {

Tensor Sequence::forward(Tensor x, Saved& saved, const Pass& pass) const {
  for (const auto& layer : layers_) x = layer->forward(std::move(x), saved, pass);
  return x;
}

Tensor Sequence::backward(Tensor dy, Saved& saved, const Pass& pass) {
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
    dy = (*layer)->backward(std::move(dy), saved, pass);
  return dy;
}

Tensor Recomputed::forward(Tensor x, Saved& saved, const Pass& pass) const {
  saved.push(x.share());
  Saved nothing = Saved::nothing();
  return inner_->forward(std::move(x), nothing, pass);
}

Tensor Recomputed::backward(Tensor dy, Saved& saved, const Pass& pass) {
  Saved again;
  Pass repeated = pass;
  repeated.recompute = true;
  inner_->forward(saved.pop(), again, repeated);
  return inner_->backward(std::move(dy), again, pass);
}

}  // namespace aisc
