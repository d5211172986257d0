#include "10_model_compression/more/power_sgd.h"

#include <utility>
#include <vector>

#include "common/core/error.h"
#include "common/ops/ops.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

// Numbers of a tensor, one view after the other.
class Pieces {
 public:
  explicit Pieces(const Tensor& all) : all_(all) {}
  View next(const Shape& shape) {
    const std::int64_t begin = std::exchange(at_, at_ + shape.count());
    return all_.view().flat(begin, shape.count()).reshaped(shape);
  }

 private:
  const Tensor& all_;
  std::int64_t at_ = 0;
};

View gradient_of(const LowRank& matrix) {
  return matrix.parameter->grad().reshaped(matrix.error.shape());
}

}  // namespace

void PowerSgd::finish() {
  store().complete_grads();
  const auto span = rank().trace.span("factors", "of gradients");
  const auto& keeper = dynamic_cast<const LowRankKeeper&>(optimizer());
  std::vector<LowRank> matrices;
  std::vector<View> others;
  std::int64_t first = 0, second = 0;  // numbers of the two all-reduces
  for (const Parameter* p : store().parameters()) {
    const LowRank* matrix = keeper.find(*p);
    if (matrix) matrices.push_back(*matrix);
    if (!matrix) others.push_back(p->grad());
    first += matrix ? matrix->error.shape()[0] * matrix->q.shape()[1] : p->grad().count();
    second += matrix ? matrix->q.count() : 0;
  }
  const auto numbers = [&](std::int64_t count) {
    return Tensor({count}, store().grad_dtype(), rank().device, Purpose::Communication);
  };
  const Tensor ps = numbers(first), qs = numbers(second);

  Pieces sent(ps);
  for (const LowRank& matrix : matrices) {
    ops::add(matrix.error, matrix.error, gradient_of(matrix));  // A = M + E
    keeper.draw_missing(matrix);
    const View p = sent.next({matrix.error.shape()[0], matrix.q.shape()[1]});
    ops::matmul(p, matrix.error, matrix.q);
  }
  for (const View& gradient : others) rank().device.copy(sent.next(gradient.shape()), gradient);
  {
    const auto waits = rank().trace.span("communication", "gradients: P");
    rank().world.all_reduce(ps).wait();  // comm: r n of each matrix, gradients of all others
  }

  Pieces came(ps), own(qs);
  for (const LowRank& matrix : matrices) {
    const View p = came.next({matrix.error.shape()[0], matrix.q.shape()[1]});
    orthogonalize(p);
    const View q = own.next(matrix.q.shape());
    ops::matmul(q, matrix.error, p, {.transpose = ops::Transpose::First});
    ops::matmul(matrix.error, p, q,
                {.transpose = ops::Transpose::Second, .alpha = -1, .into = ops::Into::Accumulate});
  }
  for (const View& gradient : others) rank().device.copy(gradient, came.next(gradient.shape()));
  if (second == 0) return;
  {
    const auto waits = rank().trace.span("communication", "gradients: Q");
    rank().world.all_reduce(qs).wait();  // comm: r m of each matrix
  }

  Pieces p_again(ps), q_of_all(qs);
  for (const LowRank& matrix : matrices) {
    const View p = p_again.next({matrix.error.shape()[0], matrix.q.shape()[1]});
    rank().device.copy(matrix.q, q_of_all.next(matrix.q.shape()));
    ops::matmul(gradient_of(matrix), p, matrix.q, {.transpose = ops::Transpose::Second});
  }
}

StepParts power_sgd(std::int64_t rank, StepParts parts) {
  if (parts.divided || !parts.all_values || !parts.all_gradients)
    fail(
        "PowerSGD: ranks divide weights or gradients, expected that each has all: factors are of "
        "whole matrices");
  if (parts.scale)
    fail(
        "PowerSGD: the loss is scaled, expected that it is not: what is left of one step would "
        "have another scale in the next");
  const auto update = parts.optimizer ? parts.optimizer : StepParts().completed().optimizer;
  parts.optimizer = [rank, update](const Rank& own, Mesh* mesh, ParameterStore& store,
                                   std::vector<OptimizerSlice> slices, const TrainConfig& config) {
    return std::make_unique<LowRankKeeper>(update(own, mesh, store, std::move(slices), config),
                                           rank, config.seed);
  };
  parts.reducer = [](const Rank& own, const Model& /*model*/, ParameterStore& store) {
    return std::make_unique<PowerSgd>(own, store);
  };
  return parts;
}

}  // namespace aisc
