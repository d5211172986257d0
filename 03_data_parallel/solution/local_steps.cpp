#include "03_data_parallel/local_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "03_data_parallel/average.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "common/train/trainer.h"

namespace aisc {

LocalSteps::LocalSteps(const Rank& rank, ParameterStore& store, const LocalOptions& options)
    : Reducer(rank, store), options_(options) {
  if (options.average_every < 1)
    fail(fmt::format("local steps: averaged every {} steps, expected 1 or more",
                     options.average_every));
  if (options.own_samples < 1 || options.own_samples > options.samples)
    fail(fmt::format("local steps: {} of {} samples are this rank's, expected 1 or more",
                     options.own_samples, options.samples));
}

void LocalSteps::finish() {
  store().complete_grads();
  const double share =
      static_cast<double>(options_.own_samples) / static_cast<double>(options_.samples);
  ops::scale(store().grads(), store().grads(), 1 / share);
}

double LocalSteps::norm(const MeshPlace& place) const {
  return root_mean_square(rank().world, Reducer::norm(place));
}

// The mean of all ranks' x, weighted by their samples.
void LocalSteps::average(View x) const {
  const auto span = rank().trace.span("communication", "average of all ranks");
  Communicator& ranks = rank().world;
  if (options_.own_samples * ranks.size() == options_.samples)
    average_gradients(ranks, x);
  else
    average_by_tokens(ranks, x, options_.own_samples);
}

void LocalSteps::updated() {
  // LAB 03.8: local steps
  // > optimizer().steps() were taken so far. average(x) makes x the mean of all ranks'.
  // > It is due for each tensor of optimizer().state(), and for the weights, store().values().
  // > Weights in a shorter type have masters in the state, "w/master": then the masters are
  // > averaged and the weights are not; ops::cast() rounds each from its master.
  if (optimizer().steps() % options_.average_every != 0) return;
  bool has_masters = false;
  // Moments and masters, on all ranks in the same order: each average is collective.
  for (const Optimizer::State& state : optimizer().state()) {
    average(state.value);
    if (!state.name.ends_with("/master")) continue;
    has_masters = true;
    ops::cast(state.parameter->value().flat(state.begin, state.value.count()), state.value);
  }
  if (!has_masters) average(store().values());
  // END LAB 03.8
}

StepParts local_steps(std::int64_t average_every, std::int64_t batch) {
  StepParts parts;
  parts.reducer = [=](const Rank& rank, const Model&, ParameterStore& store) {
    const Range mine = share_of(batch, rank.world.rank(), rank.world.size());
    return std::make_unique<LocalSteps>(
        rank, store,
        LocalOptions{
            .average_every = average_every, .samples = batch, .own_samples = mine.count()});
  };
  return parts;
}

double divergence(Communicator& ranks, ConstView weights) {
  CpuDevice host;
  Tensor own(weights.shape(), DType::F64, host), mean(weights.shape(), DType::F64, host);
  Tensor copy(weights.shape(), weights.dtype(), host);
  host.copy(copy, weights);
  ops::cast(own, copy);
  ops::scale(mean, own, 1.0 / ranks.size());
  ranks.all_reduce(mean).wait();  // comm: a part of the mean weights
  double largest = 0;
  for (std::int64_t i = 0; i < own.count(); ++i)
    largest = std::max(largest, std::abs(own.data<double>()[i] - mean.data<double>()[i]));
  return sum_of_all(ranks, largest, ReduceOp::Max);  // comm: 8 bytes
}

}  // namespace aisc
