#include "app/plan.h"

#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "common/model/emulated_device.h"
#include "common/model/replicas.h"

namespace aisc {
namespace {

// Plans of which nothing is sent: what a step asks for is counted before it is planned, and a ring
// of N ranks would be N^2 messages to follow.
PlanTable silent_plans() {
  PlanTable plans;
  plans.makers.fill([](const Collective&, int, int) { return Plan{.name = "silent"}; });
  return plans;
}

}  // namespace

double ring_bytes(const CommStats& before, const CommStats& after, int ranks) {
  const auto payload = [&](CommOp op) {
    return static_cast<double>(after[op].payload_bytes - before[op].payload_bytes);
  };
  const double n = ranks;
  return (n - 1) / n *
         (2 * payload(CommOp::AllReduce) + n * payload(CommOp::AllGather) +
          payload(CommOp::ReduceScatter));
}

StepBooks plan_step(const TrainConfig& config, int ranks, const StepParts& parts) {
  TrainConfig own = config;
  const std::int64_t parts_of_all = std::lcm(std::int64_t{ranks}, config.micro_batches);
  own.batch = config.batch / parts_of_all * parts_of_all;
  const Machine machine = find_machine("limitless");
  const Network network = machine.network(ranks);
  const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(config.model.context + 1));
  StepBooks books;
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& alone) {
    const auto replicas = make_replicas(ranks, network, alone, silent_plans());
    const Rank rank{*replicas, alone.device, alone.clock, alone.trace};
    Trainer trainer(rank, own, parts);
    const BatchSampler data(zeros, own.model.context, own.seed);
    trainer.step(data);
    rank.device.reset_peaks();
    const CommStats before = rank.world.stats();
    trainer.step(data);
    books = {.ledger = rank.device.ledger(),
             .ring_bytes = ring_bytes(before, rank.world.stats(), ranks)};
  });
  return books;
}

std::string plan_text(const TrainConfig& config, int ranks, const StepBooks& planned,
                      const StepBooks* measured) {
  std::string text = fmt::format(
      "A step on each of {} rank{}, weights in {}, gradients in {}, {} micro-batch{}; bytes\n{:<28}"
      "{:>18}{}\n",
      ranks, ranks == 1 ? "" : "s", name_of(config.model.dtype), name_of(config.gradient_dtype),
      config.micro_batches, config.micro_batches == 1 ? "" : "es", "", "planned",
      measured ? fmt::format("{:>18}", "measured") : "");
  const auto line = [&](const std::string& what, const auto& of) {
    text += fmt::format("{:<28}{:>18.0f}", what, static_cast<double>(of(planned)));
    if (measured) text += fmt::format("{:>18.0f}", static_cast<double>(of(*measured)));
    text += "\n";
  };
  for (const Purpose p :
       {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer, Purpose::Activations}) {
    if (p != Purpose::Activations)
      line(fmt::format("{}, between steps", name_of(p)),
           [p](const StepBooks& b) { return b.ledger[p].live_bytes; });
    line(fmt::format("{}, most", name_of(p)),
         [p](const StepBooks& b) { return b.ledger[p].peak_bytes; });
  }
  line("sent by a ring", [](const StepBooks& b) { return b.ring_bytes; });
  return text;
}

}  // namespace aisc
