#include "common/train/train_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/core/error.h"

namespace aisc {

RateSchedule TrainConfig::rates() const {
  return {.peak = learning_rate,
          .floor = min_learning_rate,
          .warmup_steps = warmup_steps,
          .total_steps = steps,
          .warmup = warmup,
          .decay = decay};
}

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
  positive("cp", cp);
  positive("ep", ep);
  if (all_ranks % pp != 0)
    fail(fmt::format("{} ranks are no multiple of pp {}: each stage has as many", all_ranks, pp));
  if (all_ranks / pp % tp != 0)
    fail(fmt::format("{} ranks of {} are no multiple of tp {}: as many share each layer",
                     all_ranks / pp, pp > 1 ? "a stage" : "the model", tp));
  if (all_ranks / pp / tp % cp != 0)
    fail(fmt::format("{} ranks of {} are no multiple of cp {}: as many share each sequence",
                     all_ranks / pp / tp, tp > 1 ? "a part of a layer" : "a layer", cp));
  if (model.context < cp)
    fail(fmt::format("context is {}, expected a token or more for each of cp {} ranks",
                     model.context, cp));
  if (model.heads % tp != 0)
    fail(fmt::format("heads are {}, expected a multiple of tp {}: each rank has whole heads",
                     model.heads, tp));
  const int ranks = data_ranks(all_ranks);
  const std::int64_t experts = model.experts.count;
  if (experts == 0 && ep > 1) fail(fmt::format("ep is {}, and the model has no experts", ep));
  if (ranks % ep != 0)
    fail(fmt::format("{} data-parallel ranks are no multiple of ep {}: as many share the experts",
                     ranks, ep));
  if (experts % (std::int64_t{ep} * tp) != 0)
    fail(fmt::format("experts are {}, expected a multiple of ep {} * tp {}: each rank has as many",
                     experts, ep, tp));
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

}  // namespace aisc
