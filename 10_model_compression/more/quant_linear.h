// Linear layers whose weight is codes, for generation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "10_model_compression/quantize.h"
#include "common/nn/gpt.h"

namespace aisc {

// y = gelu?(x weight^T + bias) by quant_product(). The codes are in the ledger as
// Purpose::Parameters. It has no backward: Error. Its only parameter is the bias: `name`.weight
// does not exist, and nobody allocates, loads or draws it. x of another type than F32 is computed
// in F32.
class QuantLinear final : public Layer {
 public:
  // weight (O, I); bias (O). Throws Error naming the layer if the codes are on another device.
  QuantLinear(const Rank& rank, const std::string& name, Codes weight,
              Linear::Gelu gelu = Linear::Gelu::None);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&bias_}; }

 private:
  Codes weight_;
  Linear::Gelu gelu_;
  Parameter bias_;
};

// By the name of a parameter: "blocks.3.mlp.fc.weight".
using CodesByName = std::map<std::string, Codes>;

// The names of the weights that quantized_linears() takes, of a model of so many blocks: those of
// the linear layers in blocks, all matrices but the tables.
std::vector<std::string> linear_weights(const GptConfig& config);

// These parts, of a rank that has whole layers, with a QuantLinear wherever the codes have the
// weight of a linear layer; other layers stay as they are. Models that are made of them are one
// more owner of the codes each. When a model is made throws Error naming a weight whose codes are
// of another shape, or on another device.
GptParts quantized_linears(GptParts parts, CodesByName codes);

}  // namespace aisc
