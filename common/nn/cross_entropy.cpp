#include "common/nn/cross_entropy.h"

#include <utility>

namespace aisc {

double CrossEntropy::forward(Tensor logits, const Tensor& targets, Saved& saved,
                             const Pass& pass) const {
  const auto span = rank_.trace.span("loss");
  const DType statistics = statistics_of(logits.dtype());
  const std::int64_t N = logits.shape().rows();
  Tensor losses({N}, statistics, logits.device());       // (N)
  Tensor log_sum_exp({N}, statistics, logits.device());  // (N)
  ops::cross_entropy(losses, log_sum_exp, as_rows(logits), targets.view().reshaped({N}), classes_,
                     {}, pass.training ? smoothing_ : 0);
  CpuDevice host;
  const Tensor on_host({N}, statistics, host);
  losses.device().copy(on_host, losses);
  double sum = 0;
  dispatch(statistics, [&](auto type) {
    for (const auto loss : on_host.values<decltype(type)>()) sum += static_cast<double>(loss);
  });
  saved.push(std::move(logits));
  saved.push(std::move(log_sum_exp));
  saved.push(targets.share());
  return sum;
}

Tensor CrossEntropy::backward(Saved& saved, double factor) const {
  const auto span = rank_.trace.span("loss");
  const Tensor targets = saved.pop(), log_sum_exp = saved.pop();
  Tensor logits = saved.pop();
  const std::int64_t N = logits.shape().rows();
  ops::cross_entropy_backward(as_rows(logits), as_rows(logits), log_sum_exp,
                              targets.view().reshaped({N}), classes_, factor, {}, smoothing_);
  return logits;
}

}  // namespace aisc
