#include "12_encoders/encoder_decoder.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "12_encoders/bridge.h"
#include "12_encoders/cross_attention.h"
#include "12_encoders/post_norm.h"
#include "12_encoders/sinusoidal.h"
#include "common/core/error.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

using std::make_unique;
using Wanted = const GptParts::Wanted&;

// Where the last block's norm would be, which is the layer before the head.
class NormComesLater final : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(Tensor x, Saved& /*saved*/, const Pass& /*pass*/) const override { return x; }
  Tensor backward(Tensor dy, Saved& /*saved*/, const Pass& /*pass*/) override { return dy; }
};

// N(0, 1 / C), so that a row of the table has a length of 1: the embedding multiplies by sqrt(C),
// the head does not, and both then give numbers of order 1.
Parameter scaled_table(Parameter table, std::string name) {
  table.name = std::move(name);
  table.init.value = 1 / std::sqrt(static_cast<double>(table.shape[1]));
  return table;
}

std::unique_ptr<Layer> cross_attention(Wanted w) {
  const std::int64_t C = w.config.width;
  return in_sequence(
      w.rank, w.name,
      make_unique<CrossAttention>(
          w.rank, w.name, w.config.heads / w.parts.head_parts, w.parts.column(w.part(".q"), {C, C}),
          w.parts.column(w.part(".kv"), {C, 2 * C}), w.parts.row(w.part(".project"), {C, C})),
      w.parts.dropout(w.part(".dropout")));
}

std::unique_ptr<Layer> decoder_embedding(Wanted w, std::int64_t tokens) {
  Parameter table = scaled_table(w.parts.table(w), "decoder.wte.weight");
  return in_sequence(
      w.rank, "decoder", w.parts.embedding(w, std::move(table)),
      make_unique<Sinusoidal>(w.rank, "decoder.positions", tokens, w.config.width, w.config.dtype),
      w.parts.dropout({w.rank, "decoder.dropout", w.config, w.parts}));
}

std::unique_ptr<Layer> transformer_block(Wanted w, std::int64_t decoder_tokens) {
  const auto branch = [&](const char* part, const GptParts::Make& make, const char* norm) {
    return make_unique<PostNormBranch>(w.rank, w.name + part, make(w.part(part)),
                                       w.parts.norm(w.part(norm)));
  };
  if (w.config.sees(w.block) == Sees::All)
    return in_sequence(w.rank, w.name, branch(".attention", w.parts.attention, ".norm1"),
                       branch(".mlp", w.parts.mlp, ".norm2"));
  std::unique_ptr<Layer> last =
      w.block + 1 == w.config.layers
          ? make_unique<PostNormBranch>(w.rank, w.name + ".mlp", w.parts.mlp(w.part(".mlp")),
                                        make_unique<NormComesLater>(w.rank, w.name + ".norm3"))
          : branch(".mlp", w.parts.mlp, ".norm3");
  std::unique_ptr<Layer> block =
      in_sequence(w.rank, w.name, branch(".attention", w.parts.attention, ".norm1"),
                  branch(".cross", cross_attention, ".norm2"), std::move(last));
  if (w.block > w.config.encoder_blocks) return block;
  return in_sequence(w.rank, w.name,
                     make_unique<Bridge>(w.rank, "decoder", decoder_embedding(w, decoder_tokens)),
                     std::move(block));
}

// Between two stages the second of which begins with w.block.
template <class Edge>
std::unique_ptr<Layer> edge(Wanted w, std::int64_t decoder_tokens) {
  const Handover given = handover(w.config, w.block);
  if (given == Handover::Source) return nullptr;
  return make_unique<Edge>(w.rank, w.name, decoder_tokens, given);
}

void require_whole_sequences(const GptParts& parts, Mesh* mesh) {
  const int cp = mesh ? mesh->cp().size() : 1;
  if (parts.token_parts > 1 || cp > 1)
    fail(
        fmt::format("decoder: tokens are shared by {} tensor and {} context ranks, expected 1 of "
                    "both: a source and its translation would have to be cut alike",
                    parts.token_parts, cp));
}

// Both are whole on each of the tensor ranks, which then do the same.
void keep_vocabulary_whole(GptParts& parts, double smoothing) {
  GptParts plain = gpt2_parts();
  parts.table = std::move(plain.table);
  parts.embedding = std::move(plain.embedding);
  parts.head = std::move(plain.head);
  parts.loss = [smoothing](Wanted w) {
    return make_unique<CrossEntropy>(w.rank, w.config.vocabulary, smoothing);
  };
}

}  // namespace

GptParts encoder_decoder_parts(const EncoderDecoderOptions& options, GptParts parts, Mesh* mesh) {
  require_whole_sequences(parts, mesh);
  const std::int64_t T = options.decoder_tokens;
  if (options.smoothing > 0) keep_vocabulary_whole(parts, options.smoothing);
  parts.table = [table = parts.table](Wanted w) { return scaled_table(table(w), "wte.weight"); };
  parts.positions = [](Wanted w) {
    return make_unique<Sinusoidal>(w.rank, "positions", w.config.context, w.config.width,
                                   w.config.dtype);
  };
  parts.block = [T](Wanted w) { return transformer_block(w, T); };
  parts.last = [](Wanted w) {
    if (w.config.encoder_blocks >= w.config.layers)
      fail(
          fmt::format("decoder: {} of {} blocks are the encoder's, expected one or more decoder "
                      "blocks behind them",
                      w.config.encoder_blocks, w.config.layers));
    return w.parts.norm(w);
  };
  parts.stage_begin = [T](Wanted w) { return edge<TakeApart>(w, T); };
  parts.stage_end = [T](Wanted w) { return edge<Join>(w, T); };
  parts.stage_input = [T](const GptConfig& config, std::int64_t block, const Shape& tokens) {
    const Handover given = handover(config, block);
    const std::int64_t of_source = given == Handover::Target ? 0 : tokens[1];
    return Shape{tokens[0], of_source + (given == Handover::Source ? 0 : T), config.width};
  };
  return parts;
}

StepParts encoder_decoder(const EncoderDecoderOptions& options, StepParts parts) {
  if (options.decoder_tokens < 1)
    fail(fmt::format("decoder: {} tokens, expected 1 or more", options.decoder_tokens));
  if (!(options.smoothing >= 0 && options.smoothing < 1))
    fail(fmt::format("decoder: a smoothing of {}, expected 0 <= smoothing < 1", options.smoothing));
  parts.architecture = [options](GptParts of_gpt, Mesh* mesh) {
    return encoder_decoder_parts(options, std::move(of_gpt), mesh);
  };
  return parts;
}

}  // namespace aisc
