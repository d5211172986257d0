#include "08_moe/moe_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "08_moe/capacity.h"
#include "08_moe/host_ids.h"
#include "common/core/error.h"

namespace aisc {
namespace {

std::unique_ptr<Router> router_of(const MoeLayer::Options& options, const std::string& name,
                                  const Parameter& bias) {
  const std::string& kind = options.experts.router;
  if (kind == "switch") return make_switch_router();
  if (kind == "top2") return make_top2_router();
  if (kind == "noisy-top2") return make_noisy_top2_router(name, options.seed);
  if (kind == "expert-choice") return make_expert_choice_router(options.experts.capacity);
  if (kind == "bias") return make_bias_router(bias);
  fail(fmt::format("{}: router '{}': expected switch, top2, noisy-top2, expert-choice or bias",
                   name, kind));
}

// gamma of DeepSeek-V3. What decides is the sign of the load above the mean, summed over all ranks
// as a gradient is, so small that no norm of gradients sees it.
constexpr double kBiasStep = 1e-3, kLoadUnit = 0x1p-100;

// What evens itself out needs no loss that does.
double balance_of(const GptExperts& experts) {
  return experts.router == "bias" || experts.router == "expert-choice" ? 0 : experts.balance;
}

void wait(const Rank& rank, Travelling& rows, const std::string& name) {
  const auto span = rank.trace.span("communication", name);
  rows.work.wait();
}

}  // namespace

MoeLayer::MoeLayer(const Rank& rank, const std::string& name, const Options& options,
                   std::shared_ptr<const ExpertRanks> ranks, Samples samples,
                   std::unique_ptr<Layer> shared)
    : Layer(rank, name),
      options_(options),
      self_(ranks ? nullptr : make_self_communicator(name)),
      ranks_(ranks ? std::move(ranks) : expert_ranks(*self_)),
      samples_(std::move(samples)),
      losses_{balance_of(options.experts), options.experts.z_loss},
      experts_(rank, name + ".experts",
               {options.experts.count, options.width, options.hidden, options.residual_stddev},
               ranks_->rank(), ranks_->size()),
      shared_(std::move(shared)) {
  const std::int64_t E = options.experts.count;
  const std::int64_t logits = options.experts.router == "noisy-top2" ? 2 * E : E;
  weight_ =
      whole_parameter(name + ".router.weight", {logits, options.width}, Init::normal(0.02), true);
  bias_ = whole_parameter(name + ".router.bias", {E}, Init::constant(0), false);
  bias_.sign_step = kBiasStep;
  // A tensor rank's gradients are of its own rows.
  if (samples_.tensor_ranks() > 1) weight_.sync = bias_.sync = Sync::DataAndTensor;
  router_ = router_of(options, name + ".router", bias_);
}

std::vector<Parameter*> MoeLayer::parameters() {
  std::vector<Parameter*> all{&weight_};
  if (options_.experts.router == "bias") all.push_back(&bias_);
  for (Parameter* p : experts_.parameters()) all.push_back(p);
  if (shared_)
    for (Parameter* p : shared_->parameters()) all.push_back(p);
  return all;
}

Dispatch MoeLayer::plan_of(std::span<const std::int32_t> experts, const Shape& choices,
                           const Samples::Own& own, const Pass& pass) const {
  const GptExperts& options = options_.experts;
  const std::int64_t E = options.count, k = choices[2], n = own.rows.count();
  const bool takes_tokens = options.router == "expert-choice";  // who has room is decided
  if (rank_.device.kind() == DeviceKind::Meta) {                // the even share of what is sent
    const std::int64_t all = own.samples * own.tokens;
    const std::int64_t taken =
        takes_tokens ? own.samples * E * expert_capacity(options.capacity, own.tokens, 1, E)
                     : all * k;
    return even_dispatch(rank_.device, all == 0 ? 0 : taken * n / all, E);
  }
  const bool limited = pass.training && options.capacity > 0 && !takes_tokens;
  const std::int64_t room =
      limited ? expert_capacity(options.capacity, own.tokens, k, E) : own.tokens;
  std::vector<std::uint8_t> kept;  // of all samples' choices
  for (std::int64_t b = 0; b < own.samples; ++b) {
    const auto sample = experts.subspan(index(b * own.tokens * k), index(own.tokens * k));
    const std::vector<std::uint8_t> of_sample = within_capacity(sample, k, E, room);
    kept.insert(kept.end(), of_sample.begin(), of_sample.end());
  }
  count(experts, kept, own, pass);
  std::vector<std::int32_t> own_experts;
  std::vector<std::uint8_t> own_kept;
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t j = 0; j < k; ++j) {
      const std::size_t at = index(own.place(row) * k + j);
      own_experts.push_back(experts[at]);
      own_kept.push_back(kept[at]);
    }
  return dispatch_of(rank_.device, own_experts, own_kept, k, E);
}

// What is shown of a router.
void MoeLayer::count(std::span<const std::int32_t> experts, std::span<const std::uint8_t> kept,
                     const Samples::Own& own, const Pass& pass) const {
  if (!pass.extra || pass.recompute || !samples_.counts_losses()) return;
  const std::int64_t E = options_.experts.count, B = own.samples;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    pass.extra->choices += experts[i] >= 0;
    pass.extra->dropped += experts[i] >= 0 && !kept[i];
  }
  pass.extra->samples += static_cast<double>(B);
  const std::int64_t k = std::ssize(experts) / std::max<std::int64_t>(1, B * own.tokens);
  const std::vector<double> first = first_choices(experts, B, k, E);
  for (std::int64_t b = 0; b < B; ++b)
    pass.extra->busiest += static_cast<double>(E) *
                           *std::max_element(first.begin() + b * E, first.begin() + (b + 1) * E);
}

// Counts are the host's: they are not asked for again in backward.
void MoeLayer::keep(Saved& saved, const Dispatch& plan, const Route& route) const {
  const std::int64_t E = options_.experts.count;
  const std::int64_t passing = std::ssize(route.passing);
  Tensor counts({2 * E + passing}, DType::I64, host_);
  std::int64_t* to = counts.data<std::int64_t>();
  to = std::copy(plan.counts.begin(), plan.counts.end(), to);
  to = std::copy(route.arriving.begin(), route.arriving.end(), to);
  std::copy(route.passing.begin(), route.passing.end(), to);
  saved.push(std::move(counts));
  saved.push(plan.rows.share());
  saved.push(plan.choices.share());
}

void MoeLayer::recall(Saved& saved, Dispatch& plan, Route& route) const {
  plan.choices = saved.pop();
  plan.rows = saved.pop();
  const Tensor counts = saved.pop();
  const std::int64_t *all = counts.data<std::int64_t>(), E = options_.experts.count;
  plan.counts.assign(all, all + E);
  route = route_from({all + E, all + 2 * E}, plan.counts, ranks_->size());
  route.passing.assign(all + 2 * E, all + counts.count());
}

Tensor MoeLayer::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("experts", name_);
  const Samples::Own own = samples_.own_of(x.shape(), pass);
  const std::int64_t C = x.shape()[-1], n = own.rows.count();
  Tensor mine = own.divided ? x.share().reshaped({n, C}) : Tensor({n, C}, x.dtype(), x.device());
  if (!own.divided && n > 0) x.device().copy(mine, as_rows(x).rows(own.rows.begin, own.rows.end));

  // Logits in full precision; a product of shorter numbers is summed in it.
  Tensor own_logits({n, weight_.shape[0]}, statistics_of(x.dtype()), x.device());
  if (n > 0) ops::matmul(own_logits, mine, weight_.value(), {.transpose = ops::Transpose::Second});
  const Tensor logits = samples_.whole(rank_, std::move(own_logits), own, name_ + ".logits");
  const Choices chosen = router_->choose(logits, saved, pass);
  const Shape& choices = chosen.experts.shape();
  const std::vector<std::int32_t> experts = ids_of(chosen.experts);
  if (pass.extra && !pass.recompute && samples_.counts_losses())
    pass.extra->sum += losses_.sum(
        chosen.scores, first_choices(experts, own.samples, choices[2], options_.experts.count));

  const Dispatch plan = plan_of(experts, choices, own, pass);
  const Tensor gates = samples_.own_rows(chosen.gates, own);
  const Route route = route_of(*ranks_, plan.counts);
  Travelling there = to_experts(*ranks_, dispatched(mine, plan), route);  // comm: rows
  wait(rank_, there, name_ + ".there");
  Tensor answers = experts_.forward(by_expert(std::move(there.rows), route), route.counts, saved);
  Travelling back =
      to_tokens(*ranks_, by_rank(std::move(answers), route), route);  // comm: rows, beside `shared`
  Tensor from_shared = shared_ ? shared_->forward(x.share(), saved, pass) : Tensor();
  wait(rank_, back, name_ + ".back");

  Tensor y = samples_.all_of(rank_, combined(back.rows, gates, plan, n), x.shape().rows(), own,
                             name_ + ".rows");
  if (shared_) ops::add(y, y, from_shared);
  saved.push(std::move(back.rows));
  saved.push(std::move(mine));
  saved.push(chosen.experts.share());
  saved.push(chosen.scores.share());
  saved.push(gates.share());
  keep(saved, plan, route);
  return std::move(y).reshaped(x.shape());
}

Tensor MoeLayer::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("experts", name_);
  Dispatch plan;
  Route route;
  recall(saved, plan, route);
  const Tensor gates = saved.pop();
  Tensor scores = saved.pop(), chosen = saved.pop();
  const Tensor mine = saved.pop(), answers = saved.pop();
  const Samples::Own own = samples_.own_of(dy.shape(), pass);
  const std::int64_t n = own.rows.count();

  auto [danswers, dgates] =
      combined_backward(as_rows(dy).rows(own.rows.begin, own.rows.end), answers, gates, plan);
  Travelling there = to_experts(*ranks_, danswers, route);  // comm: rows, beside `shared`
  const Tensor from_shared = shared_ ? shared_->backward(dy.share(), saved, pass) : Tensor();
  wait(rank_, there, name_ + ".there");
  Tensor dx_of_experts =
      experts_.backward(by_expert(std::move(there.rows), route), route.counts, saved, pass);
  Travelling back = to_tokens(*ranks_, by_rank(std::move(dx_of_experts), route), route);  // comm:
  // rows, beside the router's backward
  const Tensor dx_of_router = router_backward(std::move(dgates).reshaped({n, chosen.shape()[2]}),
                                              std::move(scores), chosen, mine, own, saved, pass);
  wait(rank_, back, name_ + ".back");
  Tensor dx = dispatched_backward(back.rows, plan, n);
  if (n > 0) ops::add(dx, dx, dx_of_router);
  dx = samples_.all_of(rank_, std::move(dx), dy.shape().rows(), own, name_ + ".rows");
  if (shared_) ops::add(dx, dx, from_shared);
  return std::move(dx).reshaped(dy.shape());
}

// dx (n, C) of own rows, through the logits.
Tensor MoeLayer::router_backward(Tensor dgates, const Tensor& scores, const Tensor& chosen,
                                 const Tensor& x, const Samples::Own& own, Saved& saved,
                                 const Pass& pass) {
  const std::vector<std::int32_t> experts = ids_of(chosen);
  Tensor dscores = losses_.gradient(
      scores, first_choices(experts, own.samples, chosen.shape()[2], options_.experts.count),
      pass.extra ? pass.extra->factor : 0);
  if (options_.experts.router == "bias") add_load(experts, chosen.shape()[2], own);
  const Tensor dlogits = samples_.own_rows(
      router_->backward(samples_.with_zeros(dgates, own), std::move(dscores), saved, pass), own);
  Tensor dx(x.shape(), x.dtype(), x.device());
  const Tensor rounded = dlogits.dtype() == x.dtype()
                             ? dlogits.share()
                             : Tensor(dlogits.shape(), x.dtype(), x.device());
  if (rounded.dtype() != dlogits.dtype()) ops::cast(rounded, dlogits);
  if (dx.count() > 0) ops::matmul(dx, rounded, weight_.value());
  if (dx.count() > 0) weight_grad(pass, weight_, rounded.share(), x.share());
  return dx;
}

// The gradient of the router's bias: how many more than the mean choose each expert. It is not
// clipped, and no loss.
void MoeLayer::add_load(std::span<const std::int32_t> experts, std::int64_t chosen,
                        const Samples::Own& own) {
  const std::int64_t E = options_.experts.count, n = own.rows.count();
  const double even = static_cast<double>(n * chosen) / static_cast<double>(E);
  std::vector<double> load(index(E), -even * kLoadUnit);
  for (std::int64_t i = 0; i < n * chosen; ++i)
    load[index(experts[index(own.place(i / chosen) * chosen + i % chosen)])] += kLoadUnit;
  const View grad = bias_.grad();
  CpuDevice host;
  const Tensor here(grad.shape(), grad.dtype(), host),
      there(grad.shape(), grad.dtype(), grad.device());
  ::aisc::dispatch(grad.dtype(), [&](auto type) {
    for (std::size_t e = 0; e < load.size(); ++e)
      here.data<decltype(type)>()[e] = static_cast<decltype(type)>(load[e]);
  });
  grad.device().copy(there, here);
  if (bias_.next_grad() == ops::Into::Overwrite)
    grad.device().copy(grad, there);
  else
    ops::add(grad, grad, there);
}

}  // namespace aisc
