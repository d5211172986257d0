// Measures whole training steps (data, forward, backward, clip, AdamW) of a GPT with random weights
// against the machine's own peak, measured in the same run, and tells where the time goes.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "app/emulated_run.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

TrainConfig config_named(const std::string& name) {
  TrainConfig c;
  c.steps = 1'000'000;
  if (name == "gpt2-124m") {
    c.model = {.layers = 12, .heads = 12, .width = 768, .context = 64, .vocabulary = 50257};
    c.batch = 4;
  } else {
    c.model = {.layers = 6, .heads = 6, .width = 384, .context = 256, .vocabulary = 256};
    c.batch = 8;
  }
  return c;
}

// Above it the peak's slices differ by more than a step's time may be wrong by.
constexpr double kMostSpread = 0.1;

struct Measurement {
  double seconds_per_step;
  PeakEstimate peak;                              // of a slice before each measured step
  std::map<std::string, double> seconds_by_part;  // per step
  std::int64_t cache_misses;                      // of the device in the measured steps
  Ledger ledger;
  std::map<std::string, OpCost> cost_by_part;  // FLOPs and bytes of a step
};

Measurement measure(const TrainConfig& config, int threads, int warmup, int steps) {
  CpuDevice device;
  const auto world = make_self_communicator();
  Clock clock = Clock::wall();
  Trace trace(clock);
  const Rank rank{*world, device, clock, trace};
  Trainer trainer(rank, config);
  std::vector<std::uint8_t> text(1 << 20);
  std::mt19937 random(1);
  for (auto& byte : text) byte = static_cast<std::uint8_t>(random());
  const BatchSampler data(text, config.model.context, config.seed);
  for (int i = 0; i < warmup; ++i) trainer.step(data);
  trace.reset();
  const std::int64_t misses = device.ledger().cache_misses;
  const DType arithmetic = product_arithmetic(config.model.dtype);
  PeakEstimate peak;
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    peak.add(measure_peak_slice(arithmetic, threads));
    const double begin = clock.now();
    trainer.step(data);
    seconds.push_back(clock.now() - begin);
  }
  Measurement m{median(seconds), peak, trace.seconds_by_part(), 0, device.ledger(), {}};
  m.cache_misses = m.ledger.cache_misses - misses;
  for (auto& [part, total] : m.seconds_by_part) total /= steps;
  device.listen([&](const OpCost& cost) {
    OpCost& sum = m.cost_by_part[trace.part()];
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  });
  trainer.step(data);
  device.listen(nullptr);
  return m;
}

// What a step takes in virtual time on this machine as `./aisc doctor --profile` has measured it.
double emulated_seconds(const TrainConfig& config, const std::string& profile) {
  const std::vector<std::uint8_t> text(1 << 12);
  return emulate({.config = config, .machine = find_machine(profile), .meta = true}, text).seconds;
}

nlohmann::ordered_json benchmark(const std::string& name, const std::string& precision,
                                 const std::string& recompute, const std::string& profile,
                                 int threads, int steps) {
  TrainConfig config = config_named(name);
  config.recompute = Recompute::parse(recompute);
  config.model.dtype = config.gradient_dtype = parse_dtype(precision);
  const DType dtype = config.model.dtype;
  // A shared machine's speed drifts: the peak is measured before and between the steps, and the
  // highest counts. How far the middle one of those between stays below it says how disturbed the
  // machine was while the steps were measured.
  const double before = measure_peak_flops(product_arithmetic(dtype), threads);
  const Measurement m = measure(config, threads, 3, steps);
  const double peak = std::max(before, m.peak.flops());
  const double spread = m.peak.spread_below(peak);
  const auto tokens = static_cast<double>(config.batch * config.model.context);
  const double dot = dtype == DType::BF16 ? measure_peak_flops(dtype, threads) : 0;
  const double flops = tokens * config.model.flops_per_token(config.model.context);
  const double mfu = flops / m.seconds_per_step / peak;
  const double repeated =
      tokens * config.recompute.repeated_flops_per_token(config.model, config.model.context);
  const bool is_share = spread <= kMostSpread && mfu <= 1;
  nlohmann::ordered_json share, costs;
  for (const auto& [part, cost] : m.cost_by_part)
    costs[part] = {{"flops", cost.flops}, {"bytes", cost.bytes}};
  double traced = 0;
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [part, seconds] : m.seconds_by_part) {
    parts.emplace_back(seconds, part);
    traced += seconds;
  }
  std::sort(parts.rbegin(), parts.rend());
  for (const auto& [seconds, part] : parts) share[part] = seconds / traced;
  nlohmann::ordered_json row{
      {"config", name},
      {"precision", precision},
      {"recompute", recompute},
      {"threads", threads},
      {"seconds_per_step", m.seconds_per_step},
      {"tokens_per_second", tokens / m.seconds_per_step},
      {"model_flops_per_step", flops},
      {"peak_flops", peak},
      {"peak_spread", spread},
      {"mfu", is_share ? nlohmann::ordered_json(mfu) : nullptr},
      {"hfu", is_share ? nlohmann::ordered_json(mfu * (flops + repeated) / flops) : nullptr},
      {"activation_bytes", m.ledger[Purpose::Activations].peak_bytes},
      {"share_by_part", share},
      {"costs_by_part", costs},
      {"cache_misses_after_warmup", m.cache_misses},
      {"peak_bytes", m.ledger.total.peak_bytes}};
  if (dot > 0) row["bf16_dot_flops"] = dot;
  if (!profile.empty()) row["emulated_seconds_per_step"] = emulated_seconds(config, profile);
  return row;
}

void print(const nlohmann::ordered_json& r) {
  fmt::print("{} in {}, {} threads, recomputed: {}\n", r["config"].get<std::string>(),
             r["precision"].get<std::string>(), r["threads"].get<int>(),
             r["recompute"].get<std::string>());
  fmt::print("  {:<22}{:>10.4f} s\n", "step (median)", r["seconds_per_step"].get<double>());
  fmt::print("  {:<22}{:>10.0f}\n", "tokens/s", r["tokens_per_second"].get<double>());
  fmt::print("  {:<22}{:>10.1f} GFLOP\n", "model FLOPs per step",
             r["model_flops_per_step"].get<double>() / 1e9);
  fmt::print("  {:<22}{:>10.0f} GFLOP/s\n", "peak, same run", r["peak_flops"].get<double>() / 1e9);
  if (r.contains("bf16_dot_flops"))
    fmt::print("  {:<22}{:>10.0f} GFLOP/s\n", "BF16 dot products",
               r["bf16_dot_flops"].get<double>() / 1e9);
  fmt::print("  {:<22}{:>10.1f} % from the highest to the middle one, between steps\n",
             "  its slices' spread", 100 * r["peak_spread"].get<double>());
  if (r["mfu"].is_number())
    fmt::print("  {:<22}{:>10.3f}, of the hardware with what is repeated {:.3f}\n",
               "model FLOP utilisation", r["mfu"].get<double>(), r["hfu"].get<double>());
  else
    fmt::print("  {:<22}{:>10} the machine was disturbed; no number (spread above {:.0f} %)\n",
               "model FLOP utilisation", "-", 100 * kMostSpread);
  fmt::print("  {:<22}{:>10.3f} GiB, of which activations {:.3f}\n", "peak memory",
             r["peak_bytes"].get<double>() / (1 << 30),
             r["activation_bytes"].get<double>() / (1 << 30));
  if (r.contains("emulated_seconds_per_step")) {
    const double emulated = r["emulated_seconds_per_step"];
    fmt::print("  {:<22}{:>10.4f} s, {:.2f} of what was measured\n", "in virtual time", emulated,
               emulated / r["seconds_per_step"].get<double>());
  }
  fmt::print("    {:<18}{:>11}{:>12}{:>10}{:>12}{:>10}\n", "part", "time", "GFLOP", "GB", "GFLOP/s",
             "GB/s");
  for (const auto& [part, share] : r["share_by_part"].items()) {
    const auto cost = r["costs_by_part"].value(part, nlohmann::ordered_json::object());
    const double seconds = share.get<double>() * r["seconds_per_step"].get<double>();
    const double flops = cost.value("flops", 0.0) / 1e9, bytes = cost.value("bytes", 0.0) / 1e9;
    fmt::print("    {:<18}{:>9.1f} %{:>12.2f}{:>10.3f}{:>12.1f}{:>10.1f}\n", part,
               100 * share.get<double>(), flops, bytes, flops / seconds, bytes / seconds);
  }
}

struct Flags {
  std::vector<std::string> configs, precisions, recomputes;
  std::string machine;
  int steps = 7, threads = 0;
};

void declare(CommandLine& line, Flags& flags) {
  line.texts("--config", flags.configs,
             "gpt2-124m (L12 C768 H12 V50257 B4 T64), char-10m (L6 C384 H6 V256 B8 T256); default: "
             "both",
             {"gpt2-124m", "char-10m"});
  line.texts("--precision", flags.precisions, "default: both", {"f32", "bf16"});
  line.texts("--recompute", flags.recomputes,
             "what is computed again instead of kept, one after another; default: none",
             {"none", "core", "block", "every:2", "every:3"});
  line.number("--steps", flags.steps, 5, 1000, "measured steps, after 3 of warm-up");
  line.number("--threads", flags.threads, 0, std::max(64, 4 * available_cores()), "0: all cores");
  line.text("--machine", flags.machine,
            "also say what a step takes in virtual time on this machine, a file of ./aisc doctor "
            "--profile");
}

nlohmann::ordered_json run(Flags flags) {
  if (flags.configs.empty()) flags.configs = {"gpt2-124m", "char-10m"};
  if (flags.precisions.empty()) flags.precisions = {"f32", "bf16"};
  if (flags.recomputes.empty()) flags.recomputes = {"none"};
  if (!flags.machine.empty()) find_machine(flags.machine);  // before what takes long
  const int threads = flags.threads == 0 ? available_cores() : flags.threads;
  omp_set_num_threads(threads);
  const PoliteWaits waits(threads);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const std::string& config : flags.configs)
    for (const std::string& precision : flags.precisions)
      for (const std::string& recompute : flags.recomputes) {
        rows.push_back(
            benchmark(config, precision, recompute, flags.machine, threads, flags.steps));
        print(rows.back());
      }
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::measuring_program(
      argc, argv, "Measures training steps of a GPT with random weights on this machine.",
      [&](aisc::CommandLine& line) { aisc::declare(line, flags); },
      [&] { return aisc::run(flags); });
}
