// One expert a token.
#include "08_moe/router.h"
#include "08_moe/router_parts.h"

namespace aisc {
namespace {

class SwitchRouter final : public Router {
 public:
  Choices choose(const Tensor& logits, Saved& saved, const Pass& pass) const override;
  Tensor backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                  const Pass& pass) const override;
};

Choices SwitchRouter::choose(const Tensor& logits, Saved& saved, const Pass& /*pass*/) const {
  Tensor experts = ids_like(logits, 1), gates = numbers_like(logits, 1);
  Tensor probabilities = numbers_like(logits, logits.shape()[-1]);
  // LAB 08.1: one expert a token
  // > ops::softmax(y, x), ops::top_k(ids, x) and ops::take_columns(values, x, ids) work row by row;
  // > as_rows(tensor) is (B T, E). The gate is the probability of the expert that was chosen: it is
  // > what the router learns by.
  ops::softmax(as_rows(probabilities), as_rows(logits));
  ops::top_k(as_rows(experts), as_rows(probabilities));
  ops::take_columns(as_rows(gates), as_rows(probabilities), as_rows(experts));
  // END LAB 08.1
  saved.push(std::move(probabilities));
  saved.push(experts.share());
  return {std::move(experts), std::move(gates), logits.share()};
}

Tensor SwitchRouter::backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                              const Pass& /*pass*/) const {
  const Tensor experts = saved.pop(), probabilities = saved.pop();
  Tensor dlogits = numbers_like(probabilities, probabilities.shape()[-1]);
  // LAB 08.1: one expert a token
  // > Back through take_columns_backward(dx, dvalues, ids, into) and softmax_backward(dx, dy, y),
  // > which may work in place. ops::add(out, a, b) brings in what the losses want.
  ops::take_columns_backward(as_rows(dlogits), as_rows(dgates), as_rows(experts),
                             ops::Into::Overwrite);
  ops::softmax_backward(as_rows(dlogits), as_rows(dlogits), as_rows(probabilities));
  ops::add(dlogits, dlogits, dscores);
  // END LAB 08.1
  return dlogits;
}

}  // namespace

std::unique_ptr<Router> make_switch_router() { return std::make_unique<SwitchRouter>(); }

}  // namespace aisc
