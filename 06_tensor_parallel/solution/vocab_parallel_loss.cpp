#include "06_tensor_parallel/vocab_parallel_loss.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/comm/host_values.h"

namespace aisc {
namespace {

Tensor on_host(const Tensor& x, Device& host) {
  Tensor copy(x.shape(), x.dtype(), host);
  x.device().copy(copy, x);
  return copy;
}

Tensor cast_to(DType dtype, const Tensor& x) {
  Tensor cast(x.shape(), dtype, x.device());
  ops::cast(cast, x);
  return cast;
}

}  // namespace

Tensor log_sum_exp_of_all(Communicator& tp, const Tensor& own) {
  // LAB 06.5: log-sum-exp over the classes of all ranks
  // > own is log(sum of exp) of this rank's logits, of each token. exp of it may overflow: what can
  // > be subtracted first? tp.all_reduce(x, ReduceOp::Max) is the other way to reduce; own.clone()
  // > is a copy, and x.values<double>() are its numbers, to be read and written. A rank without a
  // > class has minus infinity, and std::exp of that is 0.
  Tensor largest = own.clone(), sum = own.clone();
  tp.all_reduce(largest, ReduceOp::Max).wait();  // comm: one number a token
  const auto top = largest.values<double>(), x = sum.values<double>();
  for (std::size_t n = 0; n < x.size(); ++n) x[n] = std::exp(x[n] - top[n]);
  tp.all_reduce(sum).wait();  // comm: one number a token
  for (std::size_t n = 0; n < x.size(); ++n) x[n] = top[n] + std::log(x[n]);
  return sum;
  // END LAB 06.5
}

// Of all that are classes; behind them there is padding alone.
ops::TablePart VocabParallelCrossEntropy::classes_here() const {
  return {.begin = std::min(part_.begin, vocabulary_), .all = vocabulary_};
}

std::int64_t VocabParallelCrossEntropy::classes_of(const Tensor& logits) const {
  return std::clamp<std::int64_t>(vocabulary_ - part_.begin, 0, logits.shape()[-1]);
}

double VocabParallelCrossEntropy::forward(Tensor logits, const Tensor& targets, Saved& saved,
                                          const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("loss");
  const DType statistics = statistics_of(logits.dtype());
  const std::int64_t N = logits.shape().rows(), classes = classes_of(logits);
  Tensor losses({N}, statistics, logits.device()), log_sum_exp({N}, statistics, logits.device());
  ops::cross_entropy(losses, log_sum_exp, as_rows(logits), targets.view().reshaped({N}), classes,
                     classes_here());
  CpuDevice host;
  const Tensor own = cast_to(DType::F64, on_host(log_sum_exp, host));  // (N)
  const Tensor whole = [&] {                                           // (N)
    const auto waits = rank_.trace.span("communication", "loss");
    return log_sum_exp_of_all(tp_, own);
  }();
  const Tensor loss = cast_to(DType::F64, on_host(losses, host));  // (N)
  const Tensor target = on_host(targets, host);                    // (...)
  const std::int64_t begin = part_.begin, end = begin + classes;
  double sum = 0;  // over the tokens whose targets are this rank's
  for (std::int64_t n = 0; n < N; ++n)
    if (const std::int32_t id = target.data<std::int32_t>()[n]; id >= begin && id < end)
      sum += loss.data<double>()[n] + (whole.data<double>()[n] - own.data<double>()[n]);
  {
    const auto waits = rank_.trace.span("communication", "loss");
    sum = sum_of_all(tp_, sum);  // comm: 8 bytes
  }
  log_sum_exp.device().copy(log_sum_exp, cast_to(statistics, whole));
  saved.push(std::move(logits));
  saved.push(std::move(log_sum_exp));
  saved.push(targets.share());
  return sum;
}

Tensor VocabParallelCrossEntropy::backward(Saved& saved, double factor) const {
  const auto span = rank_.trace.span("loss");
  const Tensor targets = saved.pop(), log_sum_exp = saved.pop();
  Tensor logits = saved.pop();
  ops::cross_entropy_backward(as_rows(logits), as_rows(logits), log_sum_exp,
                              targets.view().reshaped({logits.shape().rows()}), classes_of(logits),
                              factor, classes_here());
  return logits;
}

}  // namespace aisc
