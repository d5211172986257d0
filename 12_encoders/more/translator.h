// Writes with a trained encoder-decoder: the source is read once, then the translation grows token
// by token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "12_encoders/more/beam_search.h"
#include "12_encoders/padded_batch.h"
#include "common/nn/gpt.h"
#include "common/nn/model.h"

namespace aisc {

struct TranslatorOptions {
  PairIds ids = {};
  std::int64_t source_tokens = 0;  // S, at most
  std::int64_t most = 0;           // tokens of a translation, its end included: T
};

// Of a whole model of encoder_decoder(), which lives longer than this. Where tensor ranks share its
// layers, or hooks gather its weights, all ranks make the same calls, and as many passes: greedily
// all that there may be, since ranks may round scores in ways of their own. For each token that is
// written the decoder reads all before it again: its work grows with the square of the length. A
// cache of keys and values (common/nn/key_value_cache.h) would have to follow each beginning of a
// beam to the one that it came from.
class Translator {
 public:
  // Throws Error for a model that does not have each block as a layer (stages, or blocks that are
  // recomputed in groups).
  Translator(const Rank& rank, const Model& model, const GptConfig& config,
             const TranslatorOptions& options, Hooks hooks = {});

  // The translations of one source, the best first. width, alpha: of BeamOptions. Throws Error for
  // a source of no token or of too many, and as beam_search().
  std::vector<Hypothesis> translate(const std::vector<std::int32_t>& source, int width,
                                    double alpha = 0.6) const;
  // Of each source the translation that takes the most probable token every time: a beam of width
  // 1, for many sources at once. One that does not end has `most` - 1 tokens.
  std::vector<std::vector<std::int32_t>> translate_greedily(
      std::span<const std::vector<std::int32_t>> sources) const;

 private:
  struct Source {
    Tensor value;    // (N, S, C), what the encoder made of them
    Tensor lengths;  // (N)
  };
  Source read(std::span<const std::vector<std::int32_t>> sources) const;
  Source repeated(const Source& one, std::int64_t count) const;
  Tensor through(const LayerRange& layers, Tensor x, const Pass& pass) const;
  // The log-probabilities of the next token of each of N beginnings of as many tokens, (N, V).
  std::vector<std::vector<double>> next_tokens(
      const Source& sources, std::span<const std::vector<std::int32_t>> beginnings) const;

  Rank rank_;
  const Model& model_;
  GptConfig config_;
  TranslatorOptions options_;
  Hooks hooks_;
  LayerRange encoder_, decoder_, head_;
};

}  // namespace aisc
