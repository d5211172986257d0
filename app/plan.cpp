#include "app/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "app/emulated_run.h"

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

Copied copied_since(const Copied& before, const Copied& now) {
  return {now.to_device - before.to_device, now.from_device - before.from_device};
}

double ring_bytes(const CommStats& before, const CommStats& after, int ranks) {
  const auto payload = [&](CommOp op) {
    return static_cast<double>(after[op].payload_bytes - before[op].payload_bytes);
  };
  const double n = ranks;
  return (n - 1) / n *
         (2 * payload(CommOp::AllReduce) + n * payload(CommOp::AllGather) +
          payload(CommOp::ReduceScatter));
}

SentMeter::SentMeter(const Rank& rank, const Trainer& trainer) {
  const auto count = [&](const Communicator& ranks, double SentBytes::*to) {
    counted_.push_back({&ranks, to, ranks.stats()});
  };
  Mesh* const mesh = trainer.mesh();
  count(rank.world, mesh ? &SentBytes::sums : &SentBytes::data);
  for (const Reducer::Groups& groups : trainer.groups()) {
    if (groups.within) count(*groups.within, &SentBytes::data);
    if (groups.across) count(*groups.across, &SentBytes::across);
  }
  if (!mesh) return;
  count(mesh->gradients(), &SentBytes::data);
  count(mesh->tensor_gradients(), &SentBytes::data);
  count(mesh->expert_gradients(), &SentBytes::data);
  count(mesh->experts(), &SentBytes::experts);
  count(mesh->ep(), &SentBytes::sums);
  count(mesh->tp(), &SentBytes::tensor);
  count(mesh->cp(), &SentBytes::context);
  count(mesh->pp(), &SentBytes::stages);
  if (mesh->embedding()) count(*mesh->embedding(), &SentBytes::tables);
}

SentBytes SentMeter::read() const {
  SentBytes sent;
  for (const Counted& c : counted_) {
    const CommStats after = c.ranks->stats();
    const double ring = ring_bytes(c.before, after, c.ranks->size());
    sent.*c.to += ring;
    const auto messages = [&](CommOp op) {
      return static_cast<double>(after[op].payload_bytes - c.before[op].payload_bytes);
    };
    if (c.to == &SentBytes::context || c.to == &SentBytes::experts) {
      const double n = c.ranks->size();
      sent.*c.to += messages(CommOp::Exchange) +
                    (n - 1) / n * (messages(CommOp::AllToAll) + messages(CommOp::AllToAllV));
    }
    if (c.to != &SentBytes::stages) continue;
    sent.sums += ring;  // of stages collectives add up numbers, messages are the rest
    sent.stages = messages(CommOp::Send);
  }
  return sent;
}

PlannedStep plan_step(const TrainConfig& config, int ranks, const StepParts& parts, bool alike,
                      const SampleSource* data) {
  EmulatedRun run{.config = config,
                  .machine = find_machine("limitless"),
                  .ranks = ranks,
                  .meta = true,
                  .parts = parts,
                  .plans = silent_plans(),
                  .alike = alike,
                  .most_run = 0};
  run.machine.ranks_per_node = ranks;
  run.parts.reader = {};  // no time passes while batches are made
  const std::int64_t parts_of_all =
      std::lcm(std::int64_t{config.data_ranks(ranks)}, config.micro_batches);
  run.config.batch = (config.batch + parts_of_all - 1) / parts_of_all * parts_of_all;
  const EmulatedStep step =
      data ? emulate(run, *data) : emulate(run, BlankWindows(config.model.context));
  return {.books = step.books(), .needed = step.needed};
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
  if (planned.host.total.peak_bytes > 0) {
    for (const Purpose p :
         {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer, Purpose::Activations})
      line(fmt::format("host: {}, most", name_of(p)),
           [p](const StepBooks& b) { return b.host[p].peak_bytes; });
    line("copied to the host", [](const StepBooks& b) { return b.copied.from_device; });
    line("copied to the device", [](const StepBooks& b) { return b.copied.to_device; });
  }
  const bool in_groups = planned.sent.across > 0;
  if (config.has_mesh() || in_groups)
    line(in_groups ? "sent within a group" : "sent to data ranks",
         [](const StepBooks& b) { return b.sent.data; });
  if (in_groups) line("sent across groups", [](const StepBooks& b) { return b.sent.across; });
  if (config.has_mesh()) {
    line("sent to tensor ranks", [](const StepBooks& b) { return b.sent.tensor; });
    if (config.cp > 1)
      line("sent to context ranks", [](const StepBooks& b) { return b.sent.context; });
    if (config.model.experts.count > 0)
      line("sent to experts", [](const StepBooks& b) { return b.sent.experts; });
    line("sent to other stages", [](const StepBooks& b) { return b.sent.stages + b.sent.tables; });
  }
  line("sent by a ring", [](const StepBooks& b) { return b.sent.all(); });
  return text;
}

}  // namespace aisc
