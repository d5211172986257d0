#include "common/train/step_parts.h"

#include <fmt/format.h>

#include <utility>

#include "common/core/error.h"
#include "common/optim/clip.h"
#include "common/train/train_config.h"

namespace aisc {
namespace {

std::unique_ptr<Optimizer> adamw(const Rank& /*rank*/, Mesh* /*mesh*/, ParameterStore& /*store*/,
                                 std::vector<OptimizerSlice> slices, const TrainConfig& config) {
  return std::make_unique<AdamW>(
      std::move(slices),
      AdamW::Options{
          .beta1 = config.beta1, .beta2 = config.beta2, .weight_decay = config.weight_decay});
}

std::unique_ptr<Reducer> sum_at_the_end(const Rank& rank, const Model& /*model*/,
                                        ParameterStore& store) {
  return std::make_unique<SumAtTheEnd>(rank, store);
}

}  // namespace

double one_after_another(const Rank& rank, const Model& model, std::int64_t count,
                         const ReadMicroBatch& read, double loss_factor, Hooks hooks) {
  double loss = 0;
  for (std::int64_t m = 0; m < count; ++m) {
    const auto span = rank.trace.span("other", fmt::format("micro-batch {}", m));
    const MicroBatch micro = read(m);
    loss += forward_backward(model, micro.batch.tokens, micro.batch.targets, micro.pass,
                             loss_factor, hooks);
  }
  return loss;
}

double flops_per_step(const TrainConfig& config, const StepParts& parts) {
  const GptConfig& model = config.model;
  const auto T = static_cast<double>(model.context);
  return static_cast<double>(config.batch) * (parts.flops_per_sample
                                                  ? parts.flops_per_sample(model)
                                                  : model.flops_per_token(model.context) * T);
}

double tokens_per_step(const TrainConfig& config, const StepParts& parts) {
  return static_cast<double>(config.batch * (parts.tokens_per_sample > 0 ? parts.tokens_per_sample
                                                                         : config.model.context));
}

GptParts StepParts::with_experts(const GptConfig& model, GptParts parts, Mesh* ranks) const {
  if (model.experts.count == 0) return parts;
  if (!experts)
    fail(fmt::format("experts are {}, but no parts of a model with experts are given",
                     model.experts.count));
  return experts(std::move(parts), ranks);
}

double Reducer::norm(const MeshPlace& place) const {
  std::vector<ConstView> counted;
  for (const Parameter* p : store_.parameters())
    if (counts(*p, divides(), place)) counted.push_back(p->grad());
  if (counted.size() == store_.parameters().size()) counted = {store_.grads()};  // as one
  return global_norm(counted);
}

void SumAtTheEnd::finish() {
  store().complete_grads();
  const auto span = rank().trace.span("communication", "gradients");
  rank().world.all_reduce(store().grads()).wait();  // comm: all gradients, once a step
}

StepParts StepParts::completed() && {
  if (!optimizer) optimizer = adamw;
  if (!reducer) reducer = sum_at_the_end;
  if (!loop) loop = one_after_another;
  if (!finish) finish = finish_in_order;
  if (!mesh)
    mesh = [](const Rank& rank, const MeshShape& shape) {
      return std::make_unique<Mesh>(rank.world, shape);
    };
  return std::move(*this);
}

}  // namespace aisc
