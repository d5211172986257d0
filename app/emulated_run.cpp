#include "app/emulated_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/core/error.h"
#include "common/model/host.h"
#include "common/model/replicas.h"
#include "common/train/rank_traces.h"
#include "common/train/timeline.h"

namespace aisc {
namespace {

constexpr double kSecondsADay = 86400;

// What has no room is said of all of a rank, and not of the tensor that was one too many.
void require_room(const EmulatedRun& run, const SampleSource& data) {
  const double room = run.machine.capacity;
  if (room == 0) return;
  NeededBytes bytes;
  try {
    bytes = plan_step(run.config, run.ranks, run.parts, run.alike, &data).needed;
  } catch (const Error&) {  // room is not what is wrong: the run's own error says it
    return;
  }
  const double needed = bytes.model + bytes.activations;
  if (needed <= room) return;
  fail(fmt::format(
      "a rank needs about {:.4g} GB, {:.4g} for weights, gradients and optimizer and {:.4g} for "
      "activations; {} has {:.4g} GB, {:.4g} too few: try {}",
      needed / 1e9, bytes.model / 1e9, bytes.activations / 1e9, run.machine.name, room / 1e9,
      (needed - room) / 1e9,
      bytes.model > room
          ? "--offload weights, a smaller --width, fewer --layers, or --precision bf16"
          : "--offload activations, --recompute block, more --micro-batches, or a smaller "
            "--batch"));
}

NeededBytes held_at_most(const Ledger& ledger) {
  NeededBytes held;
  for (const Purpose p : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer})
    held.model += static_cast<double>(ledger[p].peak_bytes);
  held.activations = static_cast<double>(ledger[Purpose::Activations].peak_bytes);
  return held;
}

EmulatedStep emulated(const EmulatedRun& run, const SampleSource& data) {
  EmulatedStep result;
  std::mutex mutex;
  LaunchOptions launched = on_machine(run.machine, run.ranks, {.meta = run.meta});
  const MeshShape shape = run.mesh();
  const Network network = *launched.network;
  launched.plans = run.plans;
  if (run.runs_one()) {
    launched.ranks = shape.pp;
    launched.network = network_of_every(run.machine, shape.dp * shape.tp);
  }
  launch(launched, [&](const Rank& own) {
    std::unique_ptr<Communicator> others;
    std::optional<StageReplicas> stage;
    StepParts parts = run.parts;
    if (run.place) {
      others = run.place(own.world);
    } else if (run.runs_one() && shape.dp == run.ranks && shape.ep == 1) {
      others = make_replicas(run.ranks, network, own, run.plans);
    } else if (run.runs_one()) {
      stage.emplace(own, shape, run.machine, run.plans);
      parts.mesh = [&](const Rank&, const MeshShape&) { return stage->mesh(); };
    }
    Communicator& world = stage ? stage->world() : others ? *others : own.world;
    const Rank rank{world, own.device, own.clock, own.trace};
    Trainer trainer(rank, run.config, std::move(parts));
    for (int i = 1; i < run.steps; ++i) trainer.step(data);
    rank.world.barrier();
    rank.device.reset_peaks();
    host_of(rank).memory().reset_peaks();
    const Copied copied_before = rank.device.copied();
    rank.trace.reset();
    if (!run.trace_file.empty()) rank.trace.watch(&rank.device);
    rank.trace.record(true);
    const SentMeter meter(rank, trainer);
    const CommStats::Peer sent_before = rank.world.sent_by_family();
    double product_flops = 0;
    rank.device.listen([&](const OpCost& cost) { product_flops += cost.product ? cost.flops : 0; });
    const double begin = rank.clock.now();
    const StepReport report = trainer.step(data);
    const double seconds = rank.clock.now() - begin;
    rank.trace.record(false);
    rank.device.listen(nullptr);
    if (!run.trace_file.empty()) write_traces(own, run.trace_file);
    const std::lock_guard lock(mutex);
    const Ledger ledger = rank.device.ledger();
    result.most_bytes = std::max(result.most_bytes, ledger.total.peak_bytes);
    const NeededBytes held = held_at_most(ledger);
    if (held.model + held.activations > result.needed.model + result.needed.activations)
      result.needed = held;
    const CommStats::Peer sent = rank.world.sent_by_family();
    if (!run.runs_one()) result.between_nodes += sent.between_nodes - sent_before.between_nodes;
    if (rank.world.rank() > 0) return;
    result.seconds = seconds;
    result.loss = report.loss;
    result.ledger = ledger;
    result.host = host_of(rank).memory().ledger();
    result.copied = copied_since(copied_before, rank.device.copied());
    result.seconds_by_part = rank.trace.seconds_by_part();
    const CommunicationTime communication = communication_time(rank.trace.events());
    result.communication_seconds = communication.under_way;
    result.exposed_seconds = communication.exposed;
    for (const ParameterStore* store : trainer.stores()) {
      for (const Parameter* p : store->parameters()) {  // of a table split over tp rank 0's rows
        const std::int64_t all = p->shape.count();
        result.parameters += p->init.drawn >= 0 ? std::min(p->init.drawn, all) : all;
      }
      result.elements += store->layout().count();
    }
    result.product_flops = product_flops;
    result.messages = sent.messages - sent_before.messages;
    result.sent_bytes = sent.wire_bytes - sent_before.wire_bytes;
    result.sent = meter.read();
  });
  return result;
}

}  // namespace

bool EmulatedRun::rows_are_even() const {
  const GptExperts& experts = config.model.experts;
  if (experts.count == 0) return true;
  const std::int64_t ranks_of_batch = std::int64_t{mesh().dp} * config.micro_batches;
  const double rows = static_cast<double>(config.batch / ranks_of_batch * config.model.context) *
                      experts.chosen() / config.tp;
  return config.batch % ranks_of_batch == 0 && std::fmod(rows, experts.count) == 0;
}

EmulatedStep emulate(const EmulatedRun& run, const SampleSource& data) {
  run.config.validate(run.ranks);
  try {
    return emulated(run, data);
  } catch (const Error&) {
    require_room(run, data);
    throw;
  }
}

EmulatedStep emulate(const EmulatedRun& run, TokenView text) {
  run.config.validate(run.ranks);
  return emulate(run, BatchSampler(text, run.config.model.context, run.config.seed));
}

std::string emulated_report(const EmulatedRun& run, const EmulatedStep& step, double tokens) {
  const TrainConfig& c = run.config;
  std::string text = fmt::format(
      "{} rank{} of {} ({}), {}\n\n", run.ranks, run.ranks == 1 ? "" : "s", run.machine.name,
      run.machine.says, run.meta ? "without numbers: loss and gradients are 0" : "with numbers");
  if (run.runs_one())
    text += "All ranks of a stage do the same on as many samples: one was run for all.\n\n";
  const double dtype = static_cast<double>(size_of(c.model.dtype)),
               gradient = static_cast<double>(size_of(c.gradient_dtype)),
               n = static_cast<double>(step.elements);
  const double state =
      static_cast<double>(size_of(statistics_of(c.model.dtype))) * (dtype < 4 ? 3 : 2);
  std::vector<PredictedBytes> predicted;
  if (!run.parts.divided &&
      !run.parts.optimizer)  // AdamW of all; else --plan says what is expected
    predicted = {{Purpose::Parameters, fmt::format("{} N", dtype), dtype * n},
                 {Purpose::Gradients, fmt::format("{} N", gradient), gradient * n},
                 {Purpose::Optimizer, fmt::format("{:.4g} N", state), state * n}};
  text += bytes_table(step.ledger, predicted);

  text += fmt::format("\n{:<28}{:>12}{:>9}\n", "part", "seconds", "share");
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [part, seconds] : step.seconds_by_part) parts.emplace_back(seconds, part);
  std::sort(parts.rbegin(), parts.rend());
  for (const auto& [seconds, part] : parts)
    if (seconds > 0)
      text +=
          fmt::format("{:<28}{:>12.6f}{:>8.1f} %\n", part, seconds, 100 * seconds / step.seconds);

  const double hidden = std::max(0.0, step.communication_seconds - step.exposed_seconds);
  const double tokens_a_step = tokens_per_step(c, run.parts);
  const double flops = flops_per_step(c, run.parts);
  const double repeated =
      c.recompute.repeated_flops_per_token(c.model, c.model.context) * tokens_a_step;
  const double peak = run.machine.peak(c.model.dtype) * run.ranks;
  const auto line = [&](const char* what, const std::string& figure) {
    text += fmt::format("{:<28}{:>12}\n", what, figure);
  };
  text += "\n";
  line(!c.has_mesh() ? "parameters" : "parameters of rank 0", fmt::format("{}", step.parameters));
  double states = 0;
  for (const Purpose p : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer})
    states += static_cast<double>(step.ledger[p].live_bytes);
  line("bytes a parameter", fmt::format("{:.6g}", states / n));
  line("FLOPs of a rank's products", fmt::format("{:.6g}", step.product_flops));
  if (!run.meta) line("loss", fmt::format("{:.6f}", step.loss));
  line("a step", fmt::format("{:.6g} s", step.seconds));
  line("communication, exposed", fmt::format("{:.6g} s", step.exposed_seconds));
  line("communication, hidden", fmt::format("{:.6g} s", hidden));
  line(!c.has_mesh() ? "sent by a rank" : "sent by rank 0",
       fmt::format("{:.6g} GB", static_cast<double>(step.sent_bytes) / 1e9));
  if (step.between_nodes > 0)
    line("between nodes, of all ranks",
         fmt::format("{:.6g} GB", static_cast<double>(step.between_nodes) / 1e9));
  line("tokens/s", fmt::format("{:.6g}", tokens_a_step / step.seconds));
  line("model FLOP utilisation", fmt::format("{:.3f}", flops / step.seconds / peak));
  line("hardware FLOP utilisation",
       fmt::format("{:.3f}", (flops + repeated) / step.seconds / peak));
  if (tokens > 0)
    line(fmt::format("{:.4g} tokens", tokens).c_str(),
         fmt::format("{:.4g} days", tokens / tokens_a_step * step.seconds / kSecondsADay));
  return text;
}

}  // namespace aisc
