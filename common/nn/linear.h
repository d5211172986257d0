// The linear layer: y = x weight^T + bias.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

class Linear final : public Layer {
 public:
  // The GELU between the two products of an MLP, which GPUs compute in the products: Behind the
  // first, which keeps what the GELU is given for the second, Before which it stands, and whose
  // backward takes it from there. One follows the other, with nothing that is kept between them.
  enum class Gelu { None, Behind, Before };

  // weight (out, in), drawn N(0, stddev); bias (out), 0.
  Linear(const Rank& rank, const std::string& name, std::int64_t in, std::int64_t out,
         double stddev = 0.02, Gelu gelu = Gelu::None);

  Tensor forward(Tensor x, Saved& saved,
                 const Pass& pass) const override;  // (..., in) -> (..., out)
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Gelu gelu_;
  Parameter weight_, bias_;
};

}  // namespace aisc
