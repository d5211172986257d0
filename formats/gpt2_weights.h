// GPT-2's weights as Hugging Face stores them (transformers, modeling_gpt2.py), to and from ours.
//
//   theirs                        ours                              theirs -> ours
//   wte.weight (V, C)             wte.weight (V padded, C)          rows; the padding is 0
//   wpe.weight (T, C)             wpe.weight (T, C)                 the first T rows
//   h.N.ln_1.{weight,bias}        blocks.N.norm1.{weight,bias}      as they are
//   h.N.attn.c_attn.weight        blocks.N.attention.qkv.weight     (C, 3 H D) -> (H, 3, D, C)
//   h.N.attn.c_attn.bias          blocks.N.attention.qkv.bias       (3 H D) -> (H, 3, D)
//   h.N.attn.c_proj.weight        blocks.N.attention.project.weight transposed
//   h.N.ln_2, h.N.mlp.c_fc, h.N.mlp.c_proj: likewise norm2, mlp.fc, mlp.project
//   ln_f.{weight,bias}            norm.{weight,bias}                as they are
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/nn/gpt.h"
#include "common/nn/parameter_store.h"
#include "formats/safetensors.h"

namespace aisc {

// The sizes of the model in a file, told by its tensors' shapes. The number of heads does not show
// in them: it is read from config.json beside the file (n_head), else it is `heads`, else (0) width
// / 64, as in all of GPT-2's sizes, which has to divide the width. Throws Error: not a GPT-2 (which
// tensor is missing, unknown or of which shape), a config.json that says otherwise (another
// activation, epsilon, n_inner). What it returns is in the file: a model of these sizes takes no
// more memory than the file has.
GptConfig gpt2_config(const Safetensors& file, std::int64_t heads = 0);
// Whether there is a config.json beside the file; else heads are what the caller says, or a guess.
bool says_heads(const Safetensors& file);

// Reads parameters, one at a time. Names in the file may begin with "transformer."; causal masks
// (attn.bias) are ignored; lm_head.weight must equal wte.weight. A model with a shorter context
// takes the first positions.
class Gpt2File {
 public:
  // The file must outlive this. Throws Error naming the tensor: missing, of another shape, unknown.
  Gpt2File(const Safetensors& file, const GptConfig& config);
  // `ours`: host memory of the whole parameter's shape, of any floating type. Takes as much beside
  // it, on the same device, while it reads.
  void read(const std::string& parameter, View ours) const;

 private:
  const Safetensors& file_;
  GptConfig config_;
  std::string prefix_;  // of the names in the file
};

// Writes model.safetensors and config.json into `folder`, which transformers' from_pretrained
// opens, in the parameters' type. end_of_text: the token's id, -1 for none.
void write_gpt2_weights(const std::string& folder, const GptConfig& config,
                        const ParameterStore& parameters, std::int32_t end_of_text = -1);

// What these files say beside the weights, for ranks that write them together.
struct Gpt2Outline {
  std::vector<SafetensorsSpec> tensors;  // of model.safetensors: one a parameter, in their order
  std::map<std::string, std::string> metadata;
  std::string config;  // config.json
};
Gpt2Outline gpt2_outline(const GptConfig& config, const ParameterStore& parameters, DType dtype,
                         std::int32_t end_of_text = -1);

// One parameter's values in Hugging Face's layout and back, for gradients and tests, too:
// parameter names as above. Same dtype on both sides.
struct Gpt2Tensor {
  std::string name;  // theirs, without "transformer."
  Shape shape;       // theirs
};
Gpt2Tensor gpt2_tensor(const std::string& parameter, const GptConfig& config);
void to_gpt2(View theirs, ConstView ours, const std::string& parameter, const GptConfig& config);
void from_gpt2(View ours, ConstView theirs, const std::string& parameter, const GptConfig& config);

}  // namespace aisc
