// BERT's weights as Hugging Face stores them (transformers, modeling_bert.py), to and from ours.
//
//   theirs, behind "bert."                        ours
//   embeddings.word_embeddings.weight (V, C)      wte.weight (V padded, C): the padding is 0
//   embeddings.position_embeddings.weight (T, C)  wpe.weight (T, C): the first T rows
//   embeddings.token_type_embeddings.weight       segments.weight (2, C)
//   embeddings.LayerNorm                          embedding_norm
//   encoder.layer.N.attention.self.query, key,    blocks.N.attention.qkv: three (C, C), a head's D
//     value                                         rows together -> (H, 3, D, C)
//   encoder.layer.N.attention.output.dense        blocks.N.attention.project
//   encoder.layer.N.attention.output.LayerNorm    blocks.N.norm1
//   encoder.layer.N.intermediate.dense            blocks.N.mlp.fc
//   encoder.layer.N.output.dense                  blocks.N.mlp.project
//   encoder.layer.N.output.LayerNorm              blocks.N.norm2
//   pooler.dense                                  pooler
//
//   theirs, without "bert."                       ours
//   cls.predictions.transform.dense               transform
//   cls.predictions.transform.LayerNorm           transform_norm
//   cls.predictions.bias (V)                      head.bias (V padded): the padding is 0
//   cls.seq_relationship                          next_sentence
//
// Each with .weight and .bias but the tables and head.bias; matrices are (out, in) on both sides.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/nn/gpt.h"
#include "common/nn/parameter_store.h"
#include "formats/safetensors.h"

namespace aisc {

constexpr double kBertEpsilon = 1e-12;  // of its norms
constexpr std::int64_t kBertSegments = 2;

// The sizes of the model in a file, told by its tensors' shapes: all blocks are an encoder's, the
// context is the table of positions, the MLP is 4 C wide and there are 2 segments. The number of
// heads does not show in them: it is read from config.json beside the file (num_attention_heads),
// else it is `heads`, else (0) width / 64, as in BERT's Base and Large, which has to divide the
// width. Throws Error: not a BERT (which tensor is missing, unknown or of which shape), a
// config.json that says otherwise (another activation, epsilon, intermediate_size,
// type_vocab_size). What it returns is in the file: a model of these sizes takes no more memory
// than the file has.
GptConfig bert_config(const Safetensors& file, std::int64_t heads = 0);
// The same with config.json's contents; `name` is for errors.
GptConfig bert_config_with(const Safetensors& file, std::string_view config_json,
                           const std::string& name = "config.json");

// Reads parameters, one at a time. The file is a BertForPreTraining or less: without the heads of
// pre-training (cls.*), without the pooler, and then possibly without "bert." in front of names, as
// a BertModel is written. Older files call LayerNorm's weight and bias gamma and beta.
// cls.predictions.decoder.weight must equal the table and its bias cls.predictions.bias;
// position_ids are ignored. A model with a shorter context takes the first positions.
class BertFile {
 public:
  // The file must outlive this. Throws Error naming the tensor: missing, of another shape, unknown.
  BertFile(const Safetensors& file, const GptConfig& config);
  // Those of bert_parameters() that the file has not: a caller draws them. Of pooler.*, transform.*
  // with transform_norm.* and head.bias, next_sentence.*: each all or none.
  const std::vector<std::string>& missing() const { return missing_; }
  // `ours`: host memory of the whole parameter's shape, of any floating type. Takes as much beside
  // it, on the same device, while it reads. Throws Error for one that is missing.
  void read(const std::string& parameter, View ours) const;

 private:
  const Safetensors& file_;
  GptConfig config_;
  std::vector<std::string> missing_;
};

// Writes model.safetensors and config.json into `folder`, which transformers' from_pretrained opens
// as a BertForPreTraining, in the parameters' type. pad: [PAD]'s id, -1 for none.
void write_bert_weights(const std::string& folder, const GptConfig& config,
                        const ParameterStore& parameters, std::int32_t pad = 0);

// What these files say beside the weights, for ranks that write them together.
struct BertOutline {
  std::vector<SafetensorsSpec> tensors;  // of model.safetensors: bert_tensors() of each parameter
  std::map<std::string, std::string> metadata;
  std::string config;  // config.json
};
BertOutline bert_outline(const GptConfig& config, const ParameterStore& parameters, DType dtype,
                         std::int32_t pad = 0);

// The names of all parameters of a model of these sizes, in forward order.
std::vector<std::string> bert_parameters(const GptConfig& config);

// What one parameter of ours is there: one tensor or, for queries, keys and values, three.
struct BertTensors {
  std::vector<std::string> names;  // with "bert."
  Shape shape;                     // of each
  Shape stacked() const {
    return shape.with(0, static_cast<std::int64_t>(names.size()) * shape[0]);
  }
};
// Throws Error for what is no parameter of BERT.
BertTensors bert_tensors(const std::string& parameter, const GptConfig& config);

// One parameter's values in Hugging Face's layout and back, for gradients and tests, too. `theirs`
// is stacked(): their tensors, one behind the other. Same dtype on both sides. Throw Error.
void to_bert(View theirs, ConstView ours, const std::string& parameter, const GptConfig& config);
void from_bert(View ours, ConstView theirs, const std::string& parameter, const GptConfig& config);

}  // namespace aisc
