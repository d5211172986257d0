// Experts choose tokens.
#include <fmt/format.h>

#include "08_moe/capacity.h"
#include "08_moe/host_ids.h"
#include "08_moe/router.h"
#include "08_moe/router_parts.h"
#include "common/core/error.h"

namespace aisc {
namespace {

class ExpertChoiceRouter final : public Router {
 public:
  explicit ExpertChoiceRouter(double capacity) : capacity_(capacity) {}

  Choices choose(const Tensor& logits, Saved& saved, const Pass& pass) const override;
  Tensor backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                  const Pass& pass) const override;

 private:
  double capacity_;
};

// Of the tokens (B, E, c) that experts took: the experts that each token was taken by, (B, T, E).
Tensor takers_of(const Tensor& tokens, const Tensor& logits) {
  const std::int64_t B = logits.shape()[0], T = logits.shape()[1], E = logits.shape()[2];
  const std::int64_t c = tokens.shape()[2];
  const std::vector<std::int32_t> taken = ids_of(tokens);
  std::vector<std::int32_t> takers(index(B * T * E), -1);
  for (std::int64_t i = 0; i < std::ssize(taken); ++i) {
    const std::int64_t b = i / (E * c), e = i / c % E;
    takers[index((b * T + taken[index(i)]) * E + e)] = static_cast<std::int32_t>(e);
  }
  return ids_on(logits.device(), takers).reshaped({B, T, E});
}

Choices ExpertChoiceRouter::choose(const Tensor& logits, Saved& saved, const Pass& pass) const {
  if (pass.cache)
    fail(
        "router expert-choice: an expert compares a token with those behind it, which a text that "
        "is being generated does not have yet: expected another router");
  const std::int64_t B = logits.shape()[0], T = logits.shape()[1], E = logits.shape()[2];
  const std::int64_t c = expert_capacity(capacity_, T, 1, E);
  Tensor wishes = numbers_like(logits, E), gates = numbers_like(logits, E);
  ops::softmax(as_rows(wishes), as_rows(logits));
  // By expert: how much each token wants it.
  const Tensor wanted({B, E, T}, logits.dtype(), logits.device(), Purpose::Workspace);
  const Tensor taken_gates({B, E, c}, logits.dtype(), logits.device(), Purpose::Workspace);
  const Tensor tokens({B, E, c}, DType::I32, logits.device());
  ops::permute(wanted, wishes, {0, 2, 1});
  ops::top_k(as_rows(tokens), as_rows(wanted));
  ops::take_columns(as_rows(taken_gates), as_rows(wanted), as_rows(tokens));
  ops::take_columns_backward(as_rows(wanted), as_rows(taken_gates), as_rows(tokens),
                             ops::Into::Overwrite);  // 0 where it was not taken
  ops::permute(gates, wanted, {0, 2, 1});
  saved.push(std::move(wishes));
  return {takers_of(tokens, logits), std::move(gates), logits.share()};
}

// Gates that were not taken are not used, and have no gradient.
Tensor ExpertChoiceRouter::backward(const Tensor& dgates, Tensor dscores, Saved& saved,
                                    const Pass& /*pass*/) const {
  const Tensor wishes = saved.pop();
  Tensor dlogits = numbers_like(dgates, dgates.shape()[-1]);
  ops::softmax_backward(as_rows(dlogits), as_rows(dgates), as_rows(wishes));
  ops::add(dlogits, dlogits, dscores);
  return dlogits;
}

}  // namespace

std::unique_ptr<Router> make_expert_choice_router(double capacity) {
  return std::make_unique<ExpertChoiceRouter>(capacity);
}

}  // namespace aisc
