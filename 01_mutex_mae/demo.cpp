// What this module is about, as tables and as numbers for tools/plot: the same sum in all ways, on
// 1, 2, 4 ... threads, from the cache, from memory and on a GPU; random numbers; learning in step
// or not; and what the processor could do at most. All results are checked while they are timed.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "01_mutex_mae/descent.h"
#include "01_mutex_mae/gpu_rates.h"
#include "01_mutex_mae/mae.h"
#include "01_mutex_mae/processors.h"
#include "01_mutex_mae/random.h"
#include "01_mutex_mae/rounds.h"
#include "01_mutex_mae/variants.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  bool quick = false;
  std::int64_t features = 32;
  double cached_mib = 1, streamed_mib = 256;
  int rounds = 15;
  std::int64_t epochs = 16;
};

struct Bench {
  const Flags& flags;
  const BoundThreads& threads;
  std::vector<int> counts;
  double seconds_each;  // of a sum, in a round
};

// As the system says: "AMD EPYC 9334 32-Core Processor"; of ARM's only who made it and the number
// of its kind.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string maker;
  for (std::string line; std::getline(file, line);) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) maker = value;
    if (line.starts_with("CPU part")) return fmt::format("ARM, maker {}, part {}", maker, value);
  }
  return "unknown processor";
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return fmt::format("{:.1f} ms", seconds * 1e3);
}

// ---- the machine, and the first table of the course --------------------------------------------

// Called before any thread is bound to a core: it uses all that it may.
Json machine() {
  const int cores = available_cores();
  Json json{{"processor", processor_name()}, {"cores", cores}, {"clock_hz", measure_clock_hz()}};
  const auto best = [](auto measure) { return std::max({measure(), measure(), measure()}); };
  const auto giga = [&](const char* what, int threads) {
    return json[what][std::to_string(threads)].get<double>() / 1e9;
  };
  for (const int count : {1, cores}) {
    const std::string threads = std::to_string(count);
    json["f32_peak_flops"][threads] = best([&] { return measure_peak_flops(DType::F32, count); });
    json["f64_peak_flops"][threads] = best([&] { return measure_peak_flops(DType::F64, count); });
    json["read_bandwidth"][threads] = best([&] { return measure_read_bandwidth(count); });
  }
  fmt::print(
      "{}: {} cores, {:.2f} GHz; peak {:.0f} GFLOP/s in F32, {:.0f} in F64; reads {:.1f} GB/s"
      " with one thread, {:.1f} with {}\n\n",
      json["processor"].get<std::string>(), cores, json["clock_hz"].get<double>() / 1e9,
      giga("f32_peak_flops", cores), giga("f64_peak_flops", cores), giga("read_bandwidth", 1),
      giga("read_bandwidth", cores), cores);
  return json;
}

Json processor_table(const Json& machine) {
  const int cores = machine["cores"];
  std::vector<Processor> all = processors();
  all.push_back(this_machine(cores, machine["clock_hz"],
                             machine["f32_peak_flops"][std::to_string(cores)].get<double>()));
  fmt::print("{:<22}{:>6} {:>9} {:>12} {:>9} {:>9}\n", "processor", "cores", "GHz", "FLOPs/cycle",
             "product", "printed");
  Json rows = Json::array();
  for (const Processor& p : all) {
    const std::string printed =
        p.printed_flops > 0 ? fmt::format("{:.2f}", p.printed_flops / 1e12) : "";
    fmt::print("{:<22}{:>6.0f} {:>9.3f} {:>12.1f} {:>9.2f} {:>9}  {}\n", p.name, p.cores,
               p.clock_hz / 1e9, p.flops_per_cycle, peak_flops(p) / 1e12, printed, p.note);
    rows.push_back({{"name", p.name},
                    {"cores", p.cores},
                    {"clock_hz", p.clock_hz},
                    {"flops_per_cycle", p.flops_per_cycle},
                    {"peak_flops", peak_flops(p)},
                    {"printed_flops", p.printed_flops},
                    {"note", p.note}});
  }
  fmt::print(
      "(TFLOP/s; of this machine the peak is measured, and FLOPs per cycle follow from it)\n");
  return rows;
}

// ---- sums ---------------------------------------------------------------------------------------

struct Sum {
  Variant variant;
  int threads;
};

// Times `sums` on `problem` in turns; the first is the one that all others are compared with. The
// bandwidth of memory has its turn, too: on a virtual machine it may double from minute to minute.
Json measure_sums(const Bench& bench, const Problem& problem, const std::vector<Sum>& sums,
                  int rounds) {
  const double expected = mae_serial(problem);
  std::vector<Turn> turns;
  for (const Sum& sum : sums) {
    Team& team = bench.threads.team(sum.threads);
    const auto prepare = [&bench, &sum] {
      BoundThreads::end_openmp();
      if (sum.variant.runs_on == RunsOn::OpenMp) bench.threads.bind_openmp(sum.threads);
    };
    turns.push_back({.prepare = prepare,
                     .call = [&problem, &team, &sum] { return sum.variant.run(problem, team); }});
  }
  std::vector<double> bandwidths;  // bytes/s of all cores, one value for each round
  const auto measure_bandwidth = [&bench, &bandwidths] {
    BoundThreads::end_openmp();
    bench.threads.bind_openmp(bench.threads.cores());
    bandwidths.push_back(measure_read_bandwidth(bench.threads.cores()));
  };
  turns.push_back({.prepare = measure_bandwidth, .call = [] { return 0.0; }});
  take_turns(turns, rounds, bench.seconds_each);
  turns.pop_back();
  BoundThreads::end_openmp();
  const double bytes = 4.0 * static_cast<double>(problem.N * problem.M);
  Json rows = Json::array();
  for (std::size_t k = 0; k < turns.size(); ++k) {
    const auto& [variant, threads] = sums[k];
    std::vector<double> speed_ups, shares, errors;
    for (std::size_t round = 0; round < turns[k].seconds.size(); ++round) {
      speed_ups.push_back(turns[0].seconds[round] / turns[k].seconds[round]);
      shares.push_back(bytes / turns[k].seconds[round] / bandwidths[round]);
    }
    for (const double result : turns[k].results)
      errors.push_back(expected == 0 ? 0 : std::fabs(result - expected) / expected);
    const double worst = *std::max_element(errors.begin(), errors.end());
    if (!(worst <= variant.tolerance))
      fail(fmt::format("{} with {} threads is off by {:.2g} of the serial result, {:.2g} allowed",
                       variant.name, threads, worst, variant.tolerance));
    const double seconds = median(turns[k].seconds);
    rows.push_back({{"variant", variant.name},
                    {"what", variant.what},
                    {"threads", threads},
                    {"seconds", seconds},
                    {"speed_up", median(speed_ups)},
                    {"bytes_per_second", bytes / seconds},
                    {"of_read_bandwidth", median(shares)},
                    {"error", median(errors)},
                    {"worst_error", worst}});
  }
  return rows;
}

std::int64_t samples(double mib, std::int64_t features) {
  return static_cast<std::int64_t>(mib * (1 << 20)) / 4 / features;
}

Json sums_of(const Bench& bench, const char* where, double mib, int rounds) {
  const std::int64_t M = bench.flags.features, N = samples(mib, M);
  const Problem problem = make_problem(N, M);
  std::vector<Sum> sums;
  for (const Variant& variant : variants())
    for (const int threads : bench.counts)
      if (threads == 1 || variant.runs_on != RunsOn::Caller) sums.push_back({variant, threads});
  const Json rows = measure_sums(bench, problem, sums, rounds);
  fmt::print("{}: {:g} MiB, {} samples of {} features\n", where, mib, N, M);
  fmt::print("{:<14}{:>7}{:>11}{:>10}{:>14}{:>10}\n", "", "threads", "time", "speed-up",
             "of bandwidth", "error");
  for (const Json& row : rows)
    fmt::print("{:<14}{:>7}{:>11}{:>10.2f}{:>12.0f} %{:>10.1g}{}\n",
               row["threads"] == 1 ? row["variant"].get<std::string>() : "",
               row["threads"].get<int>(), time_text(row["seconds"]), row["speed_up"].get<double>(),
               100 * row["of_read_bandwidth"].get<double>(), row["error"].get<double>(),
               row["threads"] == 1 ? "  " + row["what"].get<std::string>() : "");
  fmt::print("\n");
  return {{"where", where}, {"mib", mib}, {"N", N}, {"M", M}, {"rows", rows}};
}

// The more there is to compute between two updates, the less they disturb each other.
Json sums_by_features(const Bench& bench) {
  const int cores = bench.threads.cores();
  const std::vector<const char*> names = {"racy", "mutex", "atomic", "reduction", "simd"};
  fmt::print("speed-up of {} threads, by the work between two updates\n{:<10}{:<10}", cores,
             "features", "data");
  for (const char* name : names) fmt::print("{:>12}", name);
  fmt::print("{:>22}\n", "simd, of bandwidth");
  Json all = Json::array();
  for (const bool streamed : {false, true})
    for (const std::int64_t M : {8, 32, 128, 512}) {
      const double mib = streamed ? bench.flags.streamed_mib : bench.flags.cached_mib;
      const Problem problem = make_problem(samples(mib, M), M);
      std::vector<Sum> sums;
      for (const Variant& variant : variants()) {
        if (variant.name == "serial") sums.push_back({variant, 1});
        for (const char* name : names)
          if (variant.name == name) sums.push_back({variant, cores});
      }
      const int rounds = streamed ? 5 : bench.flags.rounds;
      const Json rows = measure_sums(bench, problem, sums, bench.flags.quick ? 1 : rounds);
      fmt::print("{:<10}{:<10}", M, streamed ? "streamed" : "cached");
      for (std::size_t k = 1; k < rows.size(); ++k)
        fmt::print("{:>12.2f}", rows[k]["speed_up"].get<double>());
      fmt::print("{:>20.0f} %\n", 100 * rows.back()["of_read_bandwidth"].get<double>());
      all.push_back({{"streamed", streamed}, {"M", M}, {"rows", rows}});
    }
  fmt::print("\n");
  return all;
}

// ---- sums on a GPU ------------------------------------------------------------------------------

Json sums_on_gpu(const Bench& bench) {
  if (gpu_count() == 0) {
    fmt::print("sums on a GPU: left out, this program sees none\n\n");
    return nullptr;
  }
  const auto gpu = make_device({.kind = DeviceKind::Cuda});
  const std::int64_t M = bench.flags.features, N = samples(4 * bench.flags.streamed_mib, M);
  const Problem problem = make_problem(N, M);
  const GpuRates rates = measure_on_gpu(problem, *gpu, bench.flags.rounds);
  const double copy = rates.copy_bytes_per_second;
  fmt::print("on a GPU, {} samples of {}; a copy moves {:.0f} GB/s\n", N, M, copy / 1e9);
  Json rows = Json::array();
  for (const GpuRate& rate : rates.sums) {
    fmt::print("{:<18}{:>12}{:>10.1f} GB/s{:>8.0f} % of the copy  {}\n", rate.variant.name,
               time_text(rate.seconds), rate.bytes_per_second / 1e9,
               100 * rate.bytes_per_second / copy, rate.variant.what);
    rows.push_back({{"variant", rate.variant.name}, {"seconds", rate.seconds}});
    rows.back().update({{"bytes_per_second", rate.bytes_per_second}, {"error", rate.error}});
  }
  fmt::print("\n");
  return {{"N", N}, {"M", M}, {"copy_bytes_per_second", copy}, {"rows", rows}};
}

// ---- random numbers -----------------------------------------------------------------------------

Json random_numbers(const Bench& bench) {
  constexpr std::uint64_t kSeed = 1;
  const std::int64_t count = bench.flags.quick ? 10'000 : 1 << 20;
  std::vector<double> out(static_cast<std::size_t>(count));
  using Fill = std::function<void(Team&)>;
  CountedMutex mutex;
  const std::vector<std::pair<const char*, Fill>> fills = {
      {"one, behind a mutex", [&](Team& team) { fill_locked(out, kSeed, team, mutex); }},
      {"one per thread", [&](Team& team) { fill_per_thread(out, kSeed, team); }},
      {"counter-based", [&](Team& team) { fill_counter(out, kSeed, team); }}};
  std::vector<Turn> turns;
  for (const auto& [name, fill] : fills)
    for (const int threads : bench.counts) {
      Team& team = bench.threads.team(threads);
      turns.push_back({.call = [&way = fill, &team] { return way(team), 0.0; }});
    }
  take_turns(turns, bench.flags.quick ? 1 : 5, 0);
  fmt::print("random numbers{:>24}{:>16}  the same in order\n", "threads", "millions/s");
  Json rows = Json::array();
  std::size_t k = 0;
  for (const auto& [name, fill] : fills) {
    fill(bench.threads.team(1));
    const std::vector<double> by_one(out.begin(), out.end());
    for (const int threads : bench.counts) {
      fill(bench.threads.team(threads));
      const double rate = static_cast<double>(count) / median(turns[k++].seconds);
      const bool same = out == by_one;
      fmt::print("{:<24}{:>14}{:>16.1f}  {}\n", threads == 1 ? name : "", threads, rate / 1e6,
                 same ? "yes" : "no");
      rows.push_back({{"generator", name},
                      {"threads", threads},
                      {"numbers_per_second", rate},
                      {"same_as_one_thread", same}});
    }
  }
  fmt::print("\n");
  return rows;
}

// ---- learning -----------------------------------------------------------------------------------

Json learning(const Bench& bench) {
  Problem problem = make_problem(bench.flags.quick ? 500 : 4096, bench.flags.features);
  std::fill(problem.w.begin(), problem.w.end(), 0.0f);  // begins with nothing learnt
  problem.b = 0;
  struct Way {
    const char* name;
    Descent (*train)(const Problem&, Team&, const DescentOptions&);
    DescentOptions options;
  };
  const std::int64_t epochs = bench.flags.quick ? 2 : bench.flags.epochs;
  const std::vector<Way> ways = {
      {"synchronous", train_synchronous, {.epochs = epochs, .batch = 64, .learning_rate = 0.016}},
      {"Hogwild", train_hogwild, {.epochs = epochs, .learning_rate = 0.00025}}};
  std::vector<Turn> turns;
  std::vector<std::vector<Descent>> descents(ways.size() * bench.counts.size());
  for (const Way& way : ways)
    for (const int threads : bench.counts) {
      Team& team = bench.threads.team(threads);
      std::vector<Descent>& runs = descents[turns.size()];
      turns.push_back({.call = [&way, &team, &problem, &runs] {
        runs.push_back(way.train(problem, team, way.options));
        return runs.back().loss.back();
      }});
    }
  take_turns(turns, bench.flags.quick ? 1 : 5, 0);
  std::vector<Turn> shuffle{
      {.call = [&] { return static_cast<double>(order_of(problem.N, 1, 0)[0]); }}};
  take_turns(shuffle, 5, 0);
  fmt::print("learning{:>26}{:>14}{:>12}   loss after 0, 1, 2, 4 ... epochs\n", "threads",
             "an epoch", "speed-up");
  Json rows = Json::array();
  std::size_t k = 0;
  for (const Way& way : ways) {
    const double by_one = median(turns[k].seconds);
    for (const int threads : bench.counts) {
      const double seconds = median(turns[k].seconds);
      const std::vector<double>& loss = descents[k++].back().loss;
      fmt::print("{:<20}{:>14}{:>14}{:>12.2f}  ", threads == 1 ? way.name : "", threads,
                 time_text(seconds / static_cast<double>(epochs)), by_one / seconds);
      for (std::size_t epoch = 0; epoch < loss.size(); epoch = epoch == 0 ? 1 : 2 * epoch)
        fmt::print(" {:.4f}", loss[epoch]);
      fmt::print("\n");
      rows.push_back({{"way", way.name},
                      {"threads", threads},
                      {"seconds_per_epoch", seconds / static_cast<double>(epochs)},
                      {"speed_up", by_one / seconds},
                      {"loss", loss}});
    }
  }
  const double seconds = median(shuffle[0].seconds);
  fmt::print("(the shuffle, which one thread does, takes {} of each epoch)\n", time_text(seconds));
  return {{"N", problem.N}, {"M", problem.M}, {"shuffle_seconds", seconds}, {"rows", rows}};
}

Json run(const Flags& flags) {
  Json json{{"machine", machine()}};
  const BoundThreads threads(thread_counts(available_cores()));
  const Bench bench{flags, threads, thread_counts(threads.cores()), flags.quick ? 1e-4 : 4e-3};
  json["sums"] = {sums_of(bench, "from the cache", flags.cached_mib, flags.rounds),
                  sums_of(bench, "from memory", flags.streamed_mib, std::max(1, flags.rounds / 3))};
  json["features"] = sums_by_features(bench);
  json["gpu"] = sums_on_gpu(bench);
  json["random"] = random_numbers(bench);
  json["learning"] = learning(bench);
  fmt::print("\n");
  json["processors"] = processor_table(json["machine"]);
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::measuring_program(
      argc, argv, "Sums a loss with threads in all ways, and measures them in turns.",
      [&](aisc::CommandLine& line) {
        line.number("--features", flags.features, 1, 1 << 16,
                    "numbers of a sample: the work between two updates");
        line.number("--cached", flags.cached_mib, 1e-6, 1e6, "MiB that stay in the cache");
        line.number("--streamed", flags.streamed_mib, 1e-6, 1e6,
                    "MiB that do not; a GPU gets four times as many");
        line.number("--rounds", flags.rounds, 1, 1000,
                    "each is measured once a round; medians are shown");
        line.number("--epochs", flags.epochs, 1, 1000, "of learning");
        line.given("--quick", flags.quick, "seconds in place of a minute: shows that it works");
      },
      [&] {
        if (flags.quick) {
          flags.cached_mib = 1.0 / 16;
          flags.streamed_mib = 1;
          flags.rounds = 3;
        }
        return aisc::run(flags);
      });
}
