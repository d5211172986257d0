#include "07_sequence_parallel/more/long_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "07_sequence_parallel/more/what_fits.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/model/emulated_device.h"
#include "common/train/trainer.h"

namespace aisc {

CoreFigures run_core(Machine machine, int ranks, std::int64_t tokens, std::int64_t width,
                     const SharedCore& core) {
  machine.capacity = 0;
  CoreFigures figures;
  std::mutex mutex;
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    const TokenPart part = core.part(rank.world.rank());
    const std::unique_ptr<Layer> layer = core.make(rank);
    const Pass pass{.tokens = part.runs, .sequence = tokens};
    Saved saved;
    Tensor x({1, part.count, 3 * width}, DType::BF16, rank.device);
    // All begin together, and a barrier's own messages are not counted.
    const auto timed = [&](double& slowest, const auto& run) {
      rank.world.barrier();
      const double begin = rank.clock.now();
      run();
      const double seconds = rank.clock.now() - begin;
      const std::lock_guard lock(mutex);
      slowest = std::max(slowest, seconds);
    };
    timed(figures.forward_seconds, [&] { x = layer->forward(std::move(x), saved, pass); });
    timed(figures.backward_seconds, [&] { layer->backward(std::move(x), saved, pass); });
    if (rank.world.rank() == 0)
      figures.sent_bytes = static_cast<double>(rank.world.stats().sent().wire_bytes);
  });
  return figures;
}

Machine products_and_links(double flops, double link_bytes_per_second) {
  Machine machine = find_machine("limitless");
  for (auto& [type, rate] : machine.flops) rate = flops;
  machine.vector_flops = machine.memory_bandwidth = 1e30;
  machine.node_link.seconds_per_byte = 1 / link_bytes_per_second;
  return machine;
}

Machine without_links(Machine machine) {
  machine.node_link = machine.card_link = {};
  return machine;
}

// What is not hidden yet is what "fits" here.
std::int64_t hidden_from(const Machine& machine, int ranks, std::int64_t width, std::int64_t step,
                         const std::function<SharedCore(std::int64_t tokens)>& make_core) {
  const Machine no_links = without_links(machine);
  const auto shows = [&](std::int64_t blocks) {
    constexpr std::int64_t kMost = 1 << 20;
    if (blocks * step > kMost)
      fail(fmt::format("hidden_from: {} tokens a rank do not hide their messages", blocks * step));
    const std::int64_t tokens = blocks * step * ranks;
    const SharedCore core = make_core(tokens);
    const auto seconds = [&](const Machine& on) {
      return run_core(on, ranks, tokens, width, core).forward_seconds;
    };
    constexpr double kRounding = 1e-9;
    return seconds(machine) > (1 + kRounding) * seconds(no_links);
  };
  return step * (largest_that_fits(shows) + 1);
}

LongRun train_long(std::int64_t tokens, std::int64_t width, int cp, int steps,
                   const StepParts& parts) {
  constexpr std::int64_t kWords = 32;
  std::vector<std::uint8_t> text(static_cast<std::size_t>(tokens) + 1);
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<std::uint8_t>(i % 7 + i % 3 * 7);
  TrainConfig config{.model = {.layers = 1,
                               .heads = 2,
                               .width = width,
                               .context = tokens,
                               .vocabulary = kWords,
                               .vocabulary_multiple = kWords},
                     .batch = 1,
                     .cp = cp,
                     .learning_rate = 1e-2,
                     .warmup_steps = 0};
  LongRun run;
  std::mutex mutex;
  launch({.ranks = cp}, [&](const Rank& rank) {
    Trainer trainer(rank, config, cp > 1 ? parts : StepParts{});
    const BatchSampler data(text, tokens, config.seed);
    const double begin = rank.clock.now();
    double first = 0, last = 0;
    for (int step = 0; step < steps; ++step) {
      last = trainer.step(data).loss;
      if (step == 0) first = last;
    }
    const double seconds = rank.clock.now() - begin;
    const Ledger ledger = rank.device.ledger();
    const std::lock_guard lock(mutex);
    run.first_loss = first;
    run.last_loss = last;
    run.seconds = std::max(run.seconds, seconds);
    run.activation_bytes = std::max(run.activation_bytes, ledger[Purpose::Activations].peak_bytes);
    run.all_bytes = std::max(run.all_bytes, ledger.total.peak_bytes);
  });
  return run;
}

}  // namespace aisc
