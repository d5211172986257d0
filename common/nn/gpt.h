// GPT-2's architecture (Radford et al., 2019): a list of layers, made of parts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/nn/attention.h"
#include "common/nn/dropout.h"
#include "common/nn/linear.h"
#include "common/nn/model.h"

namespace aisc {

// Experts in place of the MLP (module 08): so many MLPs, and a router that sends each token to
// some.
struct GptExperts {
  std::int64_t count = 0;         // 0: no block has any
  std::int64_t every = 2;         // blocks every - 1, 2 every - 1, ... have them
  std::string router = "switch";  // how experts are picked
  // An expert takes so many times its even share of a sample's tokens, no more; 0: no limit.
  double capacity = 1.25;
  double balance = 0.01, z_loss = 0.001;  // factors of what routers add to the loss
  bool shared = false;                    // beside them an MLP that all tokens pass

  // Experts that a token is sent to; in the mean, where experts take tokens.
  double chosen() const;
};

struct GptConfig {
  std::int64_t layers = 12, heads = 12, width = 768, context = 1024, vocabulary = 50257;
  std::int64_t vocabulary_multiple = 128;  // the table's rows are padded up to a multiple of this
  double dropout = 0;
  std::uint64_t seed = 0;  // of the dropout masks
  DType dtype = DType::F32;
  GptExperts experts;
  // Of the first so many blocks tokens see all others, later ones, too: an encoder's (module 12).
  std::int64_t encoder_blocks = 0;

  Sees sees(std::int64_t block) const {
    return block >= 0 && block < encoder_blocks ? Sees::All : Sees::Earlier;
  }
  std::int64_t table_rows() const;  // vocabulary, padded: 50257 -> 50304
  bool has_experts(std::int64_t block) const {
    return experts.count > 0 && (block + 1) % experts.every == 0;
  }
  // Weights of the blocks' matrix products that a token meets: 12 L C^2, and of experts the
  // router's and those of the chosen ones.
  double block_weights_per_token() const;
  // Model FLOPs of one token, forward and backward: 6 N + 12 L C T, with N the weights in matrix
  // products that it meets, the padded head included (facts/gpt2; Chowdhery et al., "PaLM", 2022,
  // appendix B).
  double flops_per_token(std::int64_t tokens) const;
  // Projections that end in the residual stream start smaller, so that its variance does not grow
  // with the number of layers: 2 L of them add up.
  double residual_stddev() const;
  // Throws Error for sizes that are not positive or do not divide.
  void validate() const;
};

// How the layers of a GPT are made: other parts are other models (split over ranks, with experts,
// with scores that are stored), and the way in which they are put together stays.
struct GptParts {
  struct Wanted {
    const Rank& rank;
    std::string name;  // with which the names of its parameters begin
    const GptConfig& config;
    const GptParts& parts;
    std::int64_t block = -1;  // in which it is; -1: in none
    Wanted part(const char* of_it) const { return {rank, name + of_it, config, parts, block}; }
  };
  using Make = std::function<std::unique_ptr<Layer>(const Wanted&)>;
  Make norm, core, attention, mlp, dropout, block, positions;
  Make last;  // what is between the blocks and the head; a norm
  // Of stages of a pipeline that pass on more than the blocks' input (Pass::side): what a stage
  // that begins with block Wanted::block, and the one that ends before it, have there more; and the
  // shape of what goes from one to the other for tokens (B, T). Empty, or null: nothing, (B, T, C).
  Make stage_begin, stage_end;
  std::function<Shape(const GptConfig& config, std::int64_t block, const Shape& tokens)>
      stage_input;
  // The linear layers of attention and MLP: those whose columns and whose rows tensor ranks share.
  struct LinearSizes {
    std::int64_t in, out;
    double stddev = 0.02;
    Linear::Gelu gelu = Linear::Gelu::None;
  };
  std::function<std::unique_ptr<Layer>(const Wanted&, const LinearSizes&)> column, row;
  // The table of the embedding, which the head shares unless it has one of its own (`shared` is
  // null: the last stage of a pipeline).
  std::function<Parameter(const Wanted&)> table;
  std::function<std::unique_ptr<Layer>(const Wanted&, Parameter table)> embedding;
  std::function<std::unique_ptr<Layer>(const Wanted&, Parameter* shared)> head;
  std::function<std::unique_ptr<Loss>(const Wanted&)> loss;
  std::int64_t recompute_blocks = 0;  // so many in sequence keep their input alone; 0: keep all
  int token_parts = 1;                // Model::token_parts
  int head_parts = 1;                 // a core has one of so many parts of the heads
  Masks masks = Masks::Drawn;         // of dropout
};
// LayerNorm; the fused core, causal or not, between the products of queries, keys and values,
// head-major, (3C, C), and the projection; an MLP of 4 C hidden columns; dropout behind both; and
// all of them in a Block. A table of table_rows() rows, Embedding, Positions, TiedHead,
// CrossEntropy.
GptParts gpt2_parts();

// The table of a head that shares none: GptParts::table's, Tied::Last.
Parameter last_table(const GptParts::Wanted& wanted);

// Blocks begin .. end of a model: a stage of a pipeline. The embedding is where the first block is
// and the head where the last one is, unless they are stages of their own, without a block: {0, 0}
// is the embedding, {L, L} the head.
struct BlockRange {
  std::int64_t begin = 0, end = -1;  // -1: the last
  // False beside the first block, or the last: a stage of its own has it.
  bool embedding = true, head = true;
  bool operator==(const BlockRange&) const = default;
};

// Embedding, positions, dropout (where the first block is), blocks, then a last norm, the head that
// shares the embedding's table and the loss (where the last is; BlockRange says how they are
// alone). Declares its parameters; a
// ParameterStore over make_units() gives them memory. Throws Error for sizes that do not fit.
Model make_gpt(const Rank& rank, const GptConfig& config, const GptParts& parts = gpt2_parts(),
               BlockRange blocks = {});
// The stages of one rank of a pipeline: Model::stages says which layers are whose. Where the first
// and the last are both here they share the table; where one of them is, its table is Tied. Throws
// Error for no stages, too, and for stages that do not follow one another.
Model make_gpt(const Rank& rank, const GptConfig& config, const GptParts& parts,
               std::span<const BlockRange> stages);

}  // namespace aisc
