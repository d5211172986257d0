#include "03_data_parallel/loader.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "common/core/error.h"
#include "common/train/trainer.h"

namespace aisc {

Loader::Loader(const Rank& rank, TokenView tokens, const LoaderOptions& options)
    : rank_(rank),
      tokens_(tokens),
      options_(options),
      sampler_(tokens, options.context, options.seed),
      queue_(std::max<std::size_t>(1, options.prefetch)) {
  if (options.prefetch > 0) thread_ = std::thread([this] { run(); });
}

Loader::~Loader() {
  queue_.close();
  if (thread_.joinable()) thread_.join();
}

void Loader::run() {
  try {
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      Loaded loaded = load(step);
      const auto span = rank_.trace.span("data", "enqueue");
      if (!queue_.push(std::move(loaded))) return;
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  queue_.close();
}

Loader::Loaded Loader::load(std::int64_t step) {
  const SampleRange mine = part_of({0, options_.batch}, rank_.world.rank(), rank_.world.size());
  const std::int64_t T = options_.context, B = mine.count();
  std::vector<std::int64_t> starts;
  {
    const auto span = rank_.trace.span("data", "choose");
    for (std::int64_t b = 0; b < B; ++b)
      starts.push_back(sampler_.start(step * options_.batch + mine.begin + b));
  }
  std::vector<TokenView> windows;
  {
    const auto span = rank_.trace.span("data", "read");
    for (const std::int64_t start : starts) windows.push_back(tokens_.part(start, start + T + 1));
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(B * (T + 1)));
  {
    const auto span = rank_.trace.span("data", "decode");
    for (std::size_t b = 0; b < windows.size(); ++b)
      windows[b].copy(0, T + 1, ids.data() + static_cast<std::int64_t>(b) * (T + 1));
  }
  const auto span = rank_.trace.span("data", "batch");
  Loaded loaded{Tensor({B, T}, DType::I32, host_), Tensor({B, T}, DType::I32, host_)};
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int32_t* const window = ids.data() + b * (T + 1);
    std::copy(window, window + T, loaded.tokens.data<std::int32_t>() + b * T);
    std::copy(window + 1, window + T + 1, loaded.targets.data<std::int32_t>() + b * T);
  }
  return loaded;
}

Batch Loader::next() {
  if (next_++ >= options_.steps) fail("loader: all batches have been taken");
  std::optional<Loaded> loaded;
  if (options_.prefetch == 0) {
    loaded = load(next_ - 1);
  } else {
    const auto span = rank_.trace.span("data", "dequeue");
    loaded = queue_.pop();
  }
  if (!loaded && failure_) std::rethrow_exception(failure_);
  if (!loaded) fail("loader: it was closed");
  const auto span = rank_.trace.span("data", "copy");
  Batch batch{Tensor(loaded->tokens.shape(), DType::I32, rank_.device),
              Tensor(loaded->targets.shape(), DType::I32, rank_.device)};
  rank_.device.copy(batch.tokens, loaded->tokens);
  rank_.device.copy(batch.targets, loaded->targets);
  return batch;
}

double loaded_step(const Rank& rank, const TrainedParts& parts, Loader& loader,
                   const LoaderOptions& options, double learning_rate) {
  const Batch batch = loader.next();
  const auto tokens = static_cast<double>(options.batch * options.context);
  const Model& model = parts.model;
  std::vector<Saved> saved(model.layers.size() + 1);
  LayerHook* const hooks[] = {&parts.reducer};
  const Pass pass{
      .step = static_cast<std::uint64_t>(parts.optimizer.steps()),
      .first_sample = part_of({0, options.batch}, rank.world.rank(), rank.world.size()).begin};
  const auto span = [&](const char* name) { return rank.trace.span("step", name); };
  {
    const auto s = span("clear");
    parts.store.clear_grads();
    parts.reducer.begin();
  }
  Tensor x;
  {
    const auto s = span("forward");
    x = forward_layers(model, batch.tokens.share(), saved, pass, hooks);
  }
  double loss = 0;
  {
    const auto s = span("loss");
    loss = model.loss->forward(std::move(x), batch.targets, saved.back()) / tokens;
    x = model.loss->backward(saved.back(), 1 / tokens);
  }
  {
    const auto s = span("backward");
    backward_layers(model, std::move(x), saved, pass, hooks);
  }
  {
    const auto s = span("reduce");
    parts.reducer.finish();
  }
  {
    const auto s = span("norm");
    if (!std::isfinite(parts.reducer.norm({}))) fail("loaded_step: gradients are not finite");
  }
  {
    const auto s = span("update");
    parts.optimizer.step({.learning_rate = learning_rate});
    parts.reducer.updated();
  }
  const auto s = span("report");
  CpuDevice host;
  const View sum(&loss, {1}, DType::F64, host);
  rank.world.all_reduce(sum).wait();  // comm: 8 bytes, the loss
  return loss;
}

std::vector<double> stalls(const std::vector<double>& load, const std::vector<double>& step,
                           std::size_t prefetch) {
  std::vector<double> waited, taken;
  double loaded = 0, over = 0;
  for (std::size_t i = 0; i < load.size(); ++i) {
    if (prefetch == 0)
      loaded = over;
    else if (i > prefetch)
      loaded = std::max(loaded, taken[i - 1 - prefetch]);
    loaded += load[i];
    taken.push_back(std::max(over, loaded));
    waited.push_back(taken.back() - over);
    over = taken.back() + step[i];
  }
  return waited;
}

}  // namespace aisc
