#include "12_encoders/fine_tuning.h"

#include <utility>

#include "common/ops/ops.h"

namespace aisc {
namespace {

// A name for each parameter, also where a rank has several slices of one.
void add_name(std::vector<std::string>& names, const std::string& name) {
  if (names.empty() || names.back() != name) names.push_back(name);
}

// What an optimizer updates, rounded or not.
View updated_weights(const Optimizer& optimizer, std::size_t slice) {
  const Tensor& master = optimizer.master(slice);
  return master ? master.view() : optimizer.slices()[slice].weight;
}

}  // namespace

Classifier::Classifier(const Rank& rank, std::int64_t labels, std::int64_t width)
    : Layer(rank, "classifier"),
      weight_(whole_parameter("classifier.weight", {labels, width}, Init::normal(0.02), true)),
      bias_(whole_parameter("classifier.bias", {labels}, Init::constant(0), false)) {}

Tensor Classifier::forward(Tensor rows, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("product", "classifier");
  Tensor scores({rows.shape()[0], weight_.shape[0]}, rows.dtype(), rows.device());
  // LAB 12.7: fine-tuning
  // > scores (N, labels) = rows (N, C) W^T + b, W (labels, C): ops::matmul has both,
  // > {.transpose = ops::Transpose::Second, .bias}. Keep in `saved` what backward needs.
  const ops::MatmulOptions with_bias{.transpose = ops::Transpose::Second, .bias = bias_.value()};
  ops::matmul(scores, rows, weight_.value(), with_bias);
  saved.push(std::move(rows));
  // END LAB 12.7
  return scores;
}

Tensor Classifier::backward(Tensor dscores, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", "classifier");
  Tensor drows;
  // LAB 12.7: fine-tuning
  // > drows (N, C) = dscores (N, labels) W; db += the sum of the rows of dscores
  // > (ops::add_bias_backward, into bias_.next_grad()); dW += dscores^T rows: weight_grad() of
  // > common/nn/layer.h, which also knows when a pipeline would rather compute it later.
  Tensor rows = saved.pop();
  drows = Tensor(rows.shape(), rows.dtype(), rows.device());
  ops::matmul(drows, dscores, weight_.value());
  ops::add_bias_backward(bias_.grad(), dscores, bias_.next_grad());
  weight_grad(pass, weight_, std::move(dscores), std::move(rows));
  // END LAB 12.7
  return drows;
}

Begun begin_from_pretrained(Trainer& trainer, const ReadPretrained& read) {
  const Optimizer& optimizer = trainer.optimizer();
  CpuDevice host;
  Begun begun;
  for (std::size_t i = 0; i < optimizer.slices().size(); ++i) {
    const OptimizerSlice& slice = optimizer.slices()[i];
    const Parameter& parameter = *slice.parameter;
    const View to = updated_weights(optimizer, i);  // (n), elements slice.begin .. of this rank's
    const Tensor whole(parameter.global_shape, to.dtype(), host);
    // LAB 12.7: fine-tuning
    // > Let read(parameter, whole) fill the whole. If pre-training did not know the parameter, leave
    // > `to` alone, and add_name() it to begun.drawn. If it did, copy into `to` what
    // > global_runs(parameter, elements of the slice) says, and add_name() it to begun.taken. A
    // > run's `local` counts from the begin of the rank's part, of which `to` is a piece.
    if (!read(parameter, whole)) {
      add_name(begun.drawn, parameter.name);
      continue;
    }
    for (const GlobalRun& run : global_runs(parameter, {slice.begin, slice.begin + to.count()}))
      to.device().copy(to.flat(run.local - slice.begin, run.count),
                       whole.view().flat(run.global, run.count));
    add_name(begun.taken, parameter.name);
    // END LAB 12.7
    optimizer.round_master(i);
  }
  trainer.resume(0, 0);
  return begun;
}

}  // namespace aisc
