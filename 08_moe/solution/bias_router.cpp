// Two experts a token, evened out by a bias in the place of a loss.
#include "08_moe/router.h"
#include "08_moe/router_parts.h"

namespace aisc {
namespace {

class BiasRouter final : public Router {
 public:
  explicit BiasRouter(const Parameter& bias) : bias_(bias) {}

  Choices choose(const Tensor& logits, Saved& saved, const Pass& pass) const override;
  Tensor backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                  const Pass& pass) const override;

 private:
  const Parameter& bias_;
};

// The bias decides who is chosen, and is in no gate: what a token gets does not depend on how busy
// experts are.
Choices BiasRouter::choose(const Tensor& logits, Saved& saved, const Pass& /*pass*/) const {
  const std::int64_t E = logits.shape()[-1];
  Tensor experts = ids_like(logits, 2), gates = numbers_like(logits, 2);
  Tensor sigmoids = numbers_like(logits, E), chosen = numbers_like(logits, 2);
  const Tensor biased = numbers_like(logits, E), bias({E}, logits.dtype(), logits.device());
  if (bias_.value().dtype() == logits.dtype())
    bias.device().copy(bias, bias_.value());
  else
    ops::cast(bias, bias_.value());
  ops::sigmoid(sigmoids, logits);
  ops::add_bias(as_rows(biased), as_rows(sigmoids), bias);
  ops::top_k(as_rows(experts), as_rows(biased));
  ops::take_columns(as_rows(chosen), as_rows(sigmoids), as_rows(experts));
  ops::normalize_rows(as_rows(gates), as_rows(chosen));
  saved.push(std::move(sigmoids));
  saved.push(std::move(chosen));
  saved.push(gates.share());
  saved.push(experts.share());
  return {std::move(experts), std::move(gates), logits.share()};
}

Tensor BiasRouter::backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                            const Pass& /*pass*/) const {
  const Tensor experts = saved.pop(), gates = saved.pop(), chosen = saved.pop(),
               sigmoids = saved.pop();
  const Tensor dchosen = numbers_like(gates, 2);
  Tensor dlogits = numbers_like(sigmoids, sigmoids.shape()[-1]);
  ops::normalize_rows_backward(as_rows(dchosen), as_rows(dgates), as_rows(gates), as_rows(chosen));
  ops::take_columns_backward(as_rows(dlogits), as_rows(dchosen), as_rows(experts),
                             ops::Into::Overwrite);
  ops::sigmoid_backward(dlogits, dlogits, sigmoids);
  ops::add(dlogits, dlogits, dscores);
  return dlogits;
}

}  // namespace

std::unique_ptr<Router> make_bias_router(const Parameter& bias) {
  return std::make_unique<BiasRouter>(bias);
}

}  // namespace aisc
