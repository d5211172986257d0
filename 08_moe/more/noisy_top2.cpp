// Two experts a token, chosen with noise that the router learns the size of.
#include <cmath>
#include <type_traits>

#include "08_moe/router.h"
#include "08_moe/router_parts.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

// In F64, of logits on the host.
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double softplus_slope(double x) { return 1 / (1 + std::exp(-x)); }

class NoisyTop2Router final : public Router {
 public:
  NoisyTop2Router(std::string name, std::uint64_t seed)
      : name_(std::move(name)), seed_(seed), top2_(make_top2_router()) {}

  Choices choose(const Tensor& logits, Saved& saved, const Pass& pass) const override;
  Tensor backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                  const Pass& pass) const override;

 private:
  // Calls f(row, expert, normal number) for all of (B, T, E).
  template <class F>
  void each(const Shape& scores, const Pass& pass, F f) const;

  std::string name_;
  std::uint64_t seed_;
  std::unique_ptr<Router> top2_;
};

template <class F>
void NoisyTop2Router::each(const Shape& scores, const Pass& pass, F f) const {
  const Philox random(seed_, name_, pass.step);
  const std::int64_t T = scores[1], E = scores[2];
  for (std::int64_t b = 0; b < scores[0]; ++b) {
    const auto sample = static_cast<std::uint64_t>(pass.first_sample + b) << 32;
    for (std::int64_t i = 0; i < T * E; ++i)
      f(b * T + i / E, i % E,
        pass.training ? random.normal(sample + static_cast<std::uint64_t>(i)) : 0.0);
  }
}

// A copy on the host; of a device without numbers, there.
Tensor on_host(CpuDevice& host, const Tensor& x) {
  const bool numbers = x.device().kind() != DeviceKind::Meta;
  Tensor copy(x.shape(), x.dtype(), numbers ? static_cast<Device&>(host) : x.device());
  x.device().copy(copy, x);
  return copy;
}

Choices NoisyTop2Router::choose(const Tensor& logits, Saved& saved, const Pass& pass) const {
  CpuDevice cpu;
  const Tensor both = on_host(cpu, logits);  // of each token E logits, then E of the noise
  const std::int64_t E = logits.shape()[-1] / 2;
  const Tensor noisy(logits.shape().with(-1, E), logits.dtype(), both.device());
  const auto add_noise = [&](auto type) {
    using S = decltype(type);
    const S* from = both.data<S>();
    S* to = noisy.data<S>();
    each(noisy.shape(), pass, [&](std::int64_t row, std::int64_t e, double normal) {
      const auto wide = static_cast<double>(from[2 * E * row + E + e]);
      to[E * row + e] = from[2 * E * row + e] + static_cast<S>(normal * softplus(wide));
    });
  };
  if (both.device().kind() != DeviceKind::Meta)
    logits.dtype() == DType::F64 ? add_noise(double()) : add_noise(float());
  Tensor scores = numbers_like(logits, E);
  logits.device().copy(scores, noisy);
  saved.push(logits.share());
  return top2_->choose(scores, saved, pass);
}

Tensor NoisyTop2Router::backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                                 const Pass& pass) const {
  CpuDevice cpu;
  const Tensor dnoisy = on_host(cpu, top2_->backward(dgates, std::move(dscores), saved, pass));
  const Tensor logits = saved.pop(), both = on_host(cpu, logits);
  const std::int64_t E = logits.shape()[-1] / 2;
  const Tensor dboth(logits.shape(), logits.dtype(), both.device());
  const auto through_noise = [&](auto type) {
    using S = decltype(type);
    const S *from = dnoisy.data<S>(), *logit = both.data<S>();
    S* to = dboth.data<S>();
    each(dnoisy.shape(), pass, [&](std::int64_t row, std::int64_t e, double normal) {
      const auto wide = static_cast<double>(logit[2 * E * row + E + e]);
      to[2 * E * row + e] = from[E * row + e];
      to[2 * E * row + E + e] = from[E * row + e] * static_cast<S>(normal * softplus_slope(wide));
    });
  };
  if (both.device().kind() != DeviceKind::Meta)
    logits.dtype() == DType::F64 ? through_noise(double()) : through_noise(float());
  Tensor dlogits = numbers_like(logits, 2 * E);
  logits.device().copy(dlogits, dboth);
  return dlogits;
}

}  // namespace

std::unique_ptr<Router> make_noisy_top2_router(std::string name, std::uint64_t seed) {
  return std::make_unique<NoisyTop2Router>(std::move(name), seed);
}

}  // namespace aisc
