// How a decoder looks at what the encoder has made of the source: attention whose queries come from
// one text and whose keys and values from another.
#pragma once

#include <memory>
#include <string>

#include "common/nn/layer.h"

namespace aisc {

// Pass::side. Throws Error naming the layer where a batch came without Batch::decoder.
SideInput& side_of(const Pass& pass, const std::string& name);

// x (B, T, C) of the decoder, value = pass.side->value (B, S, C) of the encoder -> (B, T, C)
// (Vaswani et al., arXiv 1706.03762, section 3.2.3):
//
//   q = queries(x)                    (B, T, H D)
//   k, v = keys_values(value)         (B, S, H 2 D), head-major (H, 2, D): a tensor-parallel shard
//                                     is whole heads and a run of columns
//   y = project(attention(q, k, v))   every token of x sees all of the source but its padding,
//                                     which pass.key_lengths says: no causality between two texts
//
// backward returns dx, and ADDS the gradient of value to pass.side->grad. Each decoder block looks
// at the same value, so its gradient is a sum over blocks: whoever overwrites it, leaves the
// encoder the first block's alone, with a loss that still falls. With tensor ranks each has H / t
// heads; the linear layers sum over them.
class CrossAttention final : public Layer {
 public:
  // Of `heads` heads, those here. The layers: C -> H D, C -> H 2 D, H D -> C.
  CrossAttention(const Rank& rank, std::string name, std::int64_t heads,
                 std::unique_ptr<Layer> queries, std::unique_ptr<Layer> keys_values,
                 std::unique_ptr<Layer> project);

  // Throws Error without a side input, or where nothing has given it a value.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  std::int64_t heads_;
  std::unique_ptr<Layer> queries_, keys_values_, project_;
};

}  // namespace aisc
