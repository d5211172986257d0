// A trained model made smaller: the matrices of its blocks as codes, or with zeros in them; what
// that saves, and how far off the weights are then.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "10_model_compression/more/calibrate.h"
#include "10_model_compression/more/quant_linear.h"
#include "app/saved_model.h"
#include "common/data/batches.h"
#include "common/nn/parameter_store.h"

namespace aisc {

// What becomes of each matrix. Tables, norms, biases, routers and experts stay as they are.
struct ModelCompression {
  std::optional<Quantization> codes;  // of linear_weights()
  double sparsity = 0;                // without codes: the share of can_be_pruned() that becomes 0
  const InputSquares* inputs = nullptr;  // for best_clips(); null, or of others: no clipping
  DType before = DType::F32;             // of the numbers in the file that the model is of
};

// Matrices of one kind in all blocks, or all that stays.
struct CompressedKind {
  std::string name;                                // "mlp.fc"
  std::int64_t count = 0, zeros = 0;               // weights, and those that are 0 behind it
  std::int64_t bytes_before = 0, bytes_after = 0;  // in a file
  double largest = 0;                              // |weight| before
  double largest_error = 0, error_sum = 0;         // |after - before|

  void add(std::span<const float> before, std::span<const float> after);
};

class CompressedModel {
 public:
  // `parameters`, F32, of a whole model on the host, and outlives this. What is pruned changes in
  // place. Throws Error naming a weight that is not finite, and as quantize().
  CompressedModel(const GptConfig& config, const ParameterStore& parameters,
                  const ModelCompression& how);

  // Writes model.safetensors and config.json: write_coded_weights() or write_plain_weights(). What
  // stays has the type it had; what was F64 becomes F32.
  void write(const std::string& folder, std::int32_t end_of_text) const;

  // In a model's order; without those of which there is nothing.
  const std::vector<CompressedKind>& kinds() const { return kinds_; }

 private:
  Codes codes_of(const Parameter& parameter);
  CompressedKind& kind(const std::string& name);

  const GptConfig& config_;
  const ParameterStore& parameters_;
  const ModelCompression how_;
  const DType numbers_;
  CpuDevice host_;
  CodesByName codes_;
  std::vector<CompressedKind> kinds_;
};

// The mean loss of these windows (B, T), in nats per token.
double mean_loss(const SavedModel& model, const Batch& windows);
// What each linear layer of the whole model in a file sees of windows of text (B, T) I32, on the
// host: for ModelCompression::inputs.
InputSquares inputs_of(const Rank& rank, const Safetensors& file, TextParts whole,
                       const Tensor& windows);

}  // namespace aisc
