#include "common/train/step_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"
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

// x (B, T) -> (B, n).
Tensor part_of(const Tensor& x, const TokenPart& part) {
  const std::int64_t B = x.shape()[0], T = x.shape()[1], n = part.count;
  const std::int64_t of_first = std::min(n, part.runs.split);
  Tensor own({B, n}, x.dtype(), x.device());
  for (std::int64_t b = 0; b < B; ++b)
    for (const Range run : {Range{0, of_first}, Range{of_first, n}})
      if (run.count() > 0)
        x.device().copy(own.view().flat(b * n + run.begin, run.count()),
                        x.view().flat(b * T + part.runs.position(run.begin), run.count()));
  return own;
}

// Which of this part's tokens the one at position t is; -1: none.
std::int64_t token_at(std::int64_t t, const TokenPart& part) {
  const std::int64_t of_first = std::min(part.count, part.runs.split);
  const std::int64_t in_first = t - part.runs.first, in_second = t - part.runs.second;
  if (in_first >= 0 && in_first < of_first) return in_first;
  return in_second >= 0 && in_second < part.count - of_first ? of_first + in_second : -1;
}

Tensor copy_on(Device& device, const Tensor& x) {
  Tensor copy = Tensor::zeros(x.shape(), x.dtype(), device);
  device.copy(copy, x);
  return copy;
}

// Places b T + t of B samples, and their targets, as this part has them.
void pick_own(Tensor& picked, Tensor& targets, std::int64_t B, std::int64_t T,
              const TokenPart& part) {
  CpuDevice host;
  const Tensor places = copy_on(host, picked), labels = copy_on(host, targets);
  for (std::int64_t i = 0; i < places.count(); ++i) {
    std::int32_t& place = places.data<std::int32_t>()[i];
    const std::int64_t b = place / T, t = b < B ? token_at(place % T, part) : -1;
    place = static_cast<std::int32_t>(t < 0 ? B * part.count : b * part.count + t);
    if (t < 0) labels.data<std::int32_t>()[i] = -1;
  }
  picked = copy_on(picked.device(), places);
  targets = copy_on(targets.device(), labels);
}

}  // namespace

Batch batch_of_part(Batch whole, const TokenPart& part) {
  const std::int64_t B = whole.tokens.shape()[0], T = whole.tokens.shape()[1];
  whole.tokens = part_of(whole.tokens, part);
  if (whole.segments) whole.segments = part_of(whole.segments, part);
  if (whole.picked)
    pick_own(whole.picked, whole.targets, B, T, part);
  else
    whole.targets = part_of(whole.targets, part);
  return whole;
}

MicroBatch micro_batch_of(Batch batch, Pass pass) {
  const auto view = [](const Tensor& x) { return x ? ConstView(x) : ConstView(); };
  pass.key_lengths = view(batch.lengths);
  pass.segments = view(batch.segments);
  pass.picked = view(batch.picked);
  if (!pass.training) pass.terms = batch.term_count();
  MicroBatch micro{std::move(batch), pass};
  if (micro.batch.decoder) {
    micro.side = std::make_unique<SideInput>(SideInput{.tokens = micro.batch.decoder.share()});
    micro.pass.side = micro.side.get();
  }
  return micro;
}

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
