// Experts in the head of an image classifier: each place of the last feature map is a token, as an
// image's patches are in V-MoE (Riquelme et al., "Scaling vision with sparse mixture of experts",
// NeurIPS 2021).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "08_moe/moe_layer.h"
#include "common/core/trace.h"

namespace aisc {

// images (N, C, H, W) -> (N, H W, C): a token for each place, row by row, with its C channels side
// by side. And back; `shape` is that of the images. F32 or F64. Throw Error as require_images(),
// and for tokens of other sizes.
Tensor tokens_of(const Tensor& images);
Tensor images_of(const Tensor& tokens, const Shape& shape);

// y = x + images(moe(tokens(x))): what the experts say of each place is added to it, so that a
// place whose expert had no room for it stays as it is.
class ExpertHead final : public Layer {
 public:
  // Router and experts are 08's (moe_layer.h), of width `channels` and twice that inside. `ranks`
  // together have all experts, each as many. Throws Error where they do not divide them.
  ExpertHead(const Rank& rank, const std::string& name, std::int64_t channels,
             const GptExperts& experts, Communicator& ranks);

  // (N, C, H, W) -> (N, C, H, W). N may be 0. Collective among the ranks of the experts.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return moe_.parameters(); }

 private:
  MoeLayer moe_;
};

// How often each of `experts` was chosen since the trace began to record, on all ranks, in training
// as far as it had room: what MoeLayer counts there as "expert 0", "expert 1" ... Collective.
std::vector<std::int64_t> expert_load(const Trace& trace, std::int64_t experts,
                                      Communicator& ranks);

}  // namespace aisc
