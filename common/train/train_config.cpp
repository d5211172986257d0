#include "common/train/train_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/core/error.h"

namespace aisc {

void TrainConfig::validate(int all_ranks) const {
  model.validate();
  const auto positive = [](const char* what, std::int64_t value) {
    if (value < 1) fail(fmt::format("{} is {}, expected 1 or more", what, value));
  };
  positive("batch", batch);
  positive("micro-batches", micro_batches);
  positive("steps", steps);
  positive("ranks", all_ranks);
  positive("pp", pp);
  positive("tp", tp);
  if (all_ranks % pp != 0)
    fail(fmt::format("{} ranks are no multiple of pp {}: each stage has as many", all_ranks, pp));
  if (all_ranks / pp % tp != 0)
    fail(fmt::format("{} ranks of {} are no multiple of tp {}: as many share each layer",
                     all_ranks / pp, pp > 1 ? "a stage" : "the model", tp));
  if (model.heads % tp != 0)
    fail(fmt::format("heads are {}, expected a multiple of tp {}: each rank has whole heads",
                     model.heads, tp));
  const int ranks = data_ranks(all_ranks);
  if (batch % micro_batches != 0)
    fail(fmt::format("batch {} is not a multiple of micro-batches {}", batch, micro_batches));
  if (batch / ranks < micro_batches)
    fail(fmt::format(
        "batch {} over ranks {} gives some rank {} samples, expected one or more for each of "
        "micro-batches {}",
        batch, ranks, batch / ranks, micro_batches));
  if (warmup_steps < 0) fail(fmt::format("warm-up is {} steps, expected 0 or more", warmup_steps));
  if (!(learning_rate > 0) || !std::isfinite(learning_rate))
    fail(fmt::format("learning rate is {}, expected more than 0", learning_rate));
  if (!(min_learning_rate >= 0 && min_learning_rate <= learning_rate))
    fail(fmt::format("minimum learning rate is {}, expected between 0 and the learning rate {}",
                     min_learning_rate, learning_rate));
  const auto finite = [](const char* what, double value) {
    if (!(value >= 0) || !std::isfinite(value))
      fail(fmt::format("{} is {}, expected 0 or more", what, value));
  };
  finite("clip", clip);
  finite("weight decay", weight_decay);
  for (const double beta : {beta1, beta2})
    if (!(beta >= 0 && beta < 1))
      fail(fmt::format("beta1 is {} and beta2 {}, expected 0 <= beta < 1", beta1, beta2));
  if (gradient_dtype != model.dtype && gradient_dtype != DType::F32)
    fail(fmt::format("gradients in {} beside weights in {}: expected {}F32",
                     name_of(gradient_dtype), name_of(model.dtype),
                     model.dtype == DType::F32 ? "" : name_of(model.dtype) + std::string(" or ")));
}

TrainConfig::Bytes TrainConfig::needed_bytes(int all_ranks) const {
  const int ranks = std::max(1, data_ranks(all_ranks));
  const auto L = static_cast<double>(model.layers), C = static_cast<double>(model.width);
  const auto V = static_cast<double>(model.table_rows()), T = static_cast<double>(model.context);
  const double parameters = (V + T) * C + L * (12 * C * C + 13 * C) + 2 * C;
  const DType statistics = statistics_of(model.dtype);
  const std::size_t state = (statistics == model.dtype ? 2 : 3) * size_of(statistics);
  const std::int64_t share = (batch + ranks - 1) / ranks;
  const std::int64_t at_a_time = (share + micro_batches - 1) / micro_batches;
  const auto samples = static_cast<double>(at_a_time), stages = static_cast<double>(pp);
  const double shares = std::min(stages, L);  // of the blocks: embedding and head may be alone
  // Of a pipeline the first stage has a micro-batch under way for each stage.
  const auto samples_of = [&](double parts) {
    return std::min((parts > 0 ? parts : stages) * samples, static_cast<double>(share));
  };
  const double kept = samples_of(at_once.whole), begun = std::max(kept, samples_of(at_once.all));
  // Beside what blocks keep: the last norm's two, the logits and a gradient; or, later, what is
  // remade and the gradients of a block's output and of its hidden layer. And what lies between two
  // layers, of all other micro-batches.
  // Of what tensor ranks share each has its part: logits, and of the 16 C of a block the queries,
  // keys and values, attention's output and the hidden layer, 12 C.
  const auto parts = static_cast<double>(tp);
  const double shared = 0.25 + 0.75 / parts;
  const double others =
      std::max(V / parts + 3 * C, recompute.remade_per_token(model) * shared + (1 + 4 / parts) * C);
  const double all =
      parameters * (static_cast<double>(size_of(model.dtype) + size_of(gradient_dtype) + state) +
                    extra_state * static_cast<double>(size_of(statistics)));
  // Of a pipeline the first stage, whose table is beside its part of the blocks.
  const double table = V * C / parameters;
  const double kept_of_a_token =
      recompute.kept_per_token(model) * (recompute.blocks > 0 ? 1 : shared);
  const double token_bytes = T * static_cast<double>(size_of(model.dtype));
  // No more is kept besides than there is: all that blocks keep of the micro-batches under way.
  const double to_keep =
      samples_of(at_once.whole * at_once.all) * kept_of_a_token / shares * token_bytes;
  return {
      .model = (model_bytes > 0 ? model_bytes : all) * (table + (1 - table) / shares) / parts,
      .activations = (kept * kept_of_a_token / shares + samples * others + (begun - samples) * C) *
                         token_bytes +
                     std::min(at_once.bytes, to_keep)};
}

}  // namespace aisc
