#include "08_moe/gate.h"

#include <fmt/format.h>

#include <algorithm>

#include "08_moe/capacity.h"
#include "08_moe/host_ids.h"
#include "common/core/error.h"

namespace aisc {
namespace {

std::unique_ptr<Router> router_of(const GptExperts& experts, const std::string& name,
                                  std::uint64_t seed, const Parameter& bias) {
  const std::string& kind = experts.router;
  if (kind == "switch") return make_switch_router();
  if (kind == "top2") return make_top2_router();
  if (kind == "noisy-top2") return make_noisy_top2_router(name, seed);
  if (kind == "expert-choice") return make_expert_choice_router(experts.capacity);
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

}  // namespace

Gate::Gate(const Rank& rank, const std::string& name, const GptExperts& experts, std::int64_t width,
           std::uint64_t seed, const Samples& samples)
    : rank_(rank),
      name_(name),
      experts_(experts),
      samples_(samples),
      losses_{balance_of(experts), experts.z_loss} {
  const std::int64_t E = experts.count, logits = experts.router == "noisy-top2" ? 2 * E : E;
  weight_ = whole_parameter(name + ".router.weight", {logits, width}, Init::normal(0.02), true);
  bias_ = whole_parameter(name + ".router.bias", {E}, Init::constant(0), false);
  bias_.sign_step = kBiasStep;
  // A tensor rank's gradients are of its own rows.
  if (samples_.tensor_ranks() > 1) weight_.sync = bias_.sync = Sync::DataAndTensor;
  router_ = router_of(experts, name + ".router", seed, bias_);
}

std::vector<Parameter*> Gate::parameters() {
  if (experts_.router == "bias") return {&weight_, &bias_};
  return {&weight_};
}

Routed Gate::route(const Tensor& x, const Samples::Own& own, Saved& saved, const Pass& pass) const {
  // Logits in full precision; a product of shorter numbers is summed in it.
  Tensor own_logits({x.shape()[0], weight_.shape[0]}, statistics_of(x.dtype()), x.device());
  if (x.count() > 0)
    ops::matmul(own_logits, x, weight_.value(), {.transpose = ops::Transpose::Second});
  const Tensor logits = samples_.whole(rank_, std::move(own_logits), own, name_ + ".logits");
  Choices choices = router_->choose(logits, saved, pass);
  const std::vector<std::int32_t> experts = ids_of(choices.experts);
  Routed routed{
      .dispatch = {},
      .gates = samples_.own_rows(choices.gates, own),
      .scores = choices.scores.share(),
      .first = first_choices(experts, own.samples, choices.experts.shape()[2], experts_.count)};
  plan(routed, choices, experts, own, pass);
  saved.push(std::move(choices.scores));
  saved.push(std::move(choices.experts));
  return routed;
}

void Gate::plan(Routed& routed, const Choices& choices, std::span<const std::int32_t> experts,
                const Samples::Own& own, const Pass& pass) const {
  const std::int64_t E = experts_.count, k = choices.experts.shape()[2], n = own.rows.count();
  const std::int64_t tokens = own.samples * own.tokens;
  const bool takes_tokens = experts_.router == "expert-choice";  // who has room is decided
  if (rank_.device.kind() == DeviceKind::Meta) {                 // the even share of what is sent
    const std::int64_t all =
        takes_tokens ? own.samples * E * expert_capacity(experts_.capacity, own.tokens, 1, E)
                     : tokens * k;
    routed.dispatch = even_dispatch(rank_.device, tokens == 0 ? 0 : all * n / tokens, E);
    return;
  }
  const bool limited = pass.training && experts_.capacity > 0 && !takes_tokens;
  const std::int64_t room =
      limited ? expert_capacity(experts_.capacity, own.tokens, k, E) : own.tokens;
  std::vector<std::uint8_t> kept;  // of all samples' choices
  for (std::int64_t b = 0; b < own.samples; ++b) {
    const auto sample = experts.subspan(index(b * own.tokens * k), index(own.tokens * k));
    const std::vector<std::uint8_t> of_sample = within_capacity(sample, k, E, room);
    kept.insert(kept.end(), of_sample.begin(), of_sample.end());
  }
  for (std::size_t i = 0; i < experts.size(); ++i) {
    routed.choices += experts[i] >= 0;
    routed.dropped += experts[i] >= 0 && !kept[i];
  }
  std::vector<std::int32_t> own_experts;
  std::vector<std::uint8_t> own_kept;
  for (std::int64_t i = 0; i < n * k; ++i) {
    const std::size_t at = index(own.place(i / k) * k + i % k);
    own_experts.push_back(experts[at]);
    own_kept.push_back(kept[at]);
  }
  routed.dispatch = dispatch_of(rank_.device, own_experts, own_kept, k, E);
}

void Gate::report(const Routed& routed, const Pass& pass) const {
  if (!pass.extra || pass.recompute || !samples_.counts_losses()) return;
  ExtraLoss& extra = *pass.extra;
  const std::int64_t E = experts_.count;
  const double losses = losses_.sum(routed.scores, routed.first);
  if (rank_.trace.is_recording())
    rank_.trace.count(name_ + ".router", {{"auxiliary loss", losses}, {"dropped", routed.dropped}});
  extra.sum += losses;
  extra.choices += routed.choices;
  extra.dropped += routed.dropped;
  for (auto sample = routed.first.begin(); sample != routed.first.end(); sample += E) {
    ++extra.samples;
    extra.busiest += static_cast<double>(E) * *std::max_element(sample, sample + E);
  }
}

Tensor Gate::backward(Tensor dgates, const Tensor& x, const Samples::Own& own, Saved& saved,
                      const Pass& pass) {
  const Tensor chosen = saved.pop(), scores = saved.pop();
  const std::vector<std::int32_t> experts = ids_of(chosen);
  const std::int64_t k = chosen.shape()[2];
  if (experts_.router == "bias") add_load(experts, k, own);
  Tensor dscores = losses_.gradient(scores, first_choices(experts, own.samples, k, experts_.count),
                                    pass.extra ? pass.extra->factor : 0);
  const Tensor dlogits = samples_.own_rows(
      router_->backward(samples_.with_zeros(dgates, own), std::move(dscores), saved, pass), own);
  const bool is_long = dlogits.dtype() != x.dtype();  // F32 beside a shorter x
  const Tensor rounded = is_long ? Tensor(dlogits.shape(), x.dtype(), x.device()) : dlogits.share();
  if (is_long) ops::cast(rounded, dlogits);
  Tensor dx(x.shape(), x.dtype(), x.device());
  if (dx.count() == 0) return dx;
  ops::matmul(dx, rounded, weight_.value());
  weight_grad(pass, weight_, rounded.share(), x.share());
  return dx;
}

// The gradient of the router's bias: how many more than the mean choose each expert. It is not
// clipped, and no loss.
void Gate::add_load(std::span<const std::int32_t> experts, std::int64_t chosen,
                    const Samples::Own& own) {
  const std::int64_t E = experts_.count, n = own.rows.count();
  const double even = static_cast<double>(n * chosen) / static_cast<double>(E);
  std::vector<double> load(index(E), -even * kLoadUnit);
  for (std::int64_t i = 0; i < n * chosen; ++i)
    load[index(experts[index(own.place(i / chosen) * chosen + i % chosen)])] += kLoadUnit;
  const View grad = bias_.grad();
  CpuDevice host;
  const Tensor here(grad.shape(), grad.dtype(), host),
      there(grad.shape(), grad.dtype(), grad.device());
  dispatch(grad.dtype(), [&](auto type) {
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
