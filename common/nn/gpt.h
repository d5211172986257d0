// GPT-2's architecture (Radford et al., 2019) as a list of layers; the loop over them is outside.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/nn/cross_entropy.h"
#include "common/nn/embedding.h"
#include "common/nn/layer.h"

namespace aisc {

struct GptConfig {
  std::int64_t layers = 12, heads = 12, width = 768, context = 1024, vocabulary = 50257;
  std::int64_t vocabulary_multiple = 128;  // the table's rows are padded up to a multiple of this
  double dropout = 0;
  std::uint64_t seed = 0;  // of the dropout masks
  DType dtype = DType::F32;

  std::int64_t table_rows() const;  // vocabulary, padded: 50257 -> 50304
  // Model FLOPs of one token, forward and backward: 6 N + 12 L C T, with N the weights in matrix
  // products, the padded head included (facts/gpt2; Chowdhery et al., "PaLM", 2022, appendix B).
  double flops_per_token(std::int64_t tokens) const;
  // Throws Error for sizes that are not positive or do not divide.
  void validate() const;
};

// embedding, dropout, blocks, a last layer norm, and the head that shares the embedding's table.
// Declares its parameters; a ParameterStore over units() gives them memory.
class Gpt {
 public:
  Gpt(const Rank& rank, const GptConfig& config);

  const GptConfig& config() const { return config_; }
  std::span<const std::unique_ptr<Layer>> layers() const { return layers_; }
  const CrossEntropy& loss() const { return loss_; }
  // In forward order: the tied table alone, the positions, one unit a block, the last norm.
  std::vector<Unit> units() const;

 private:
  // `unit` is the name of the unit that the layer's parameters make; empty: it has none of its own.
  void add(std::string unit, std::unique_ptr<Layer> layer);

  GptConfig config_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::string> unit_names_;  // by layer
  Embedding* embedding_;                 // layers_[0]
  CrossEntropy loss_;
};

}  // namespace aisc
