// How large a batch is of use: steps to the same loss for batches of 8 to 4096, each with the best
// of several learning rates (Shallue et al., "Measuring the effects of data parallelism on neural
// network training", JMLR 2019). Some minutes on two cores.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "03_data_parallel/markov_text.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/system/polite_waits.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kContext = 16;

struct Flags {
  std::int64_t least = 8, most = 4096, steps = 4000;
  double loss = 1.68;
};

// Steps until the loss on `windows` is `flags.loss`, or `most` + 1.
std::int64_t steps_to_loss(const Rank& rank, TokenView text, std::int64_t batch, double rate,
                           std::int64_t most, const Flags& flags) {
  TrainConfig c;
  c.model = {
      .layers = 1, .heads = 2, .width = 32, .context = kContext, .vocabulary = kMarkovTokens};
  c.batch = batch;
  c.steps = flags.steps;
  c.warmup_steps = 5;
  c.learning_rate = c.min_learning_rate = rate;
  omp_set_num_threads(batch * kContext < 8192 ? 1 : omp_get_num_procs());
  Trainer trainer(rank, c);
  const BatchSampler data(text, kContext, 1);
  std::vector<Batch> windows;
  windows.push_back(even_windows(text, kContext, 256, rank.device));
  for (std::int64_t step = 1; step <= most; ++step) {
    trainer.step(data);
    // A twentieth of the steps is as exactly as it is known.
    if (step % std::max<std::int64_t>(1, step / 20) == 0 && trainer.evaluate(windows) <= flags.loss)
      return step;
  }
  return most + 1;
}

Json measured(const Rank& rank, const Flags& flags) {
  const auto text = markov_text(1 << 18);
  fmt::print("{:>8}{:>16}{:>10}{:>14}{:>16}\n", "batch", "learning rate", "steps", "samples",
             "if it were 1/B");
  Json rows = Json::array();
  std::int64_t first = 0, first_batch = 0;
  double best_rate = 4e-3;
  for (std::int64_t batch = flags.least; batch <= flags.most; batch *= 2) {
    std::int64_t best = flags.steps;
    const double around = best_rate;
    best_rate = 0;
    for (const double factor : {2.0, 1.0, 4.0, 1.414, 0.5}) {
      const std::int64_t steps = steps_to_loss(rank, text, batch, around * factor, best, flags);
      if (steps < best) best = steps, best_rate = around * factor;
    }
    if (best_rate == 0) {
      fmt::print("{:>8}  the loss was not reached in {} steps\n", batch, flags.steps);
      best_rate = around;
      continue;
    }
    if (first == 0) first = best, first_batch = batch;
    const double perfect = static_cast<double>(first * first_batch) / static_cast<double>(batch);
    fmt::print("{:>8}{:>16.4f}{:>10}{:>14}{:>16.1f}\n", batch, best_rate, best, best * batch,
               perfect);
    std::cout.flush();
    rows.push_back({{"batch", batch}, {"rate", best_rate}, {"steps", best}, {"perfect", perfect}});
  }
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::measuring_program(
      argc, argv, "Steps to the same loss, by the size of the batch.",
      [&](aisc::CommandLine& line) {
        line.number("--least", flags.least, 1, 1 << 20, "smallest batch");
        line.number("--most", flags.most, 1, 1 << 20, "largest; batches double");
        line.number("--loss", flags.loss, 0, 10, "nats that are to be reached");
        line.number("--steps", flags.steps, 1, 1 << 30, "that are tried");
      },
      [&] {
        aisc::Json rows;
        const aisc::PoliteWaits waits(omp_get_max_threads());
        aisc::launch({.bind = false},
                     [&](const aisc::Rank& rank) { rows = aisc::measured(rank, flags); });
        return aisc::Json{{"largest_batch", rows}};
      });
}
