// Measures collectives of this library, on threads and on processes under MPI, against a bare loop
// over shared memory and against MPI itself; or runs them in virtual time on a network that one
// describes; or measures how much of an all_reduce hides behind computation.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/comm_summary.h"
#include "bench/emulate_comm.h"
#include "bench/measure_comm.h"
#include "bench/mpi_processes.h"
#include "common/core/error.h"
#include "common/core/files.h"
#include "common/core/machine.h"

namespace aisc {
namespace {

struct Flags {
  std::vector<std::string> operations;
  std::vector<int> ranks{2, 4, 8};
  std::string min_bytes = "8B", max_bytes = "64MiB";
  std::string json;

  double seconds = 60;
  std::vector<std::string> backends{"thread", "bare", "mpi", "raw-mpi"};
  bool check = false;

  bool overlap = false;

  bool emulate = false;
  std::string alpha = "5us", beta = "12.5GB/s", gamma;
  int nodes = 1, cards = 1;
  std::string card_alpha = "5us", card_beta = "12.5GB/s";
  double pace = 0;
  std::string trace;
};

using Units = std::vector<std::pair<std::string, double>>;

// "1.5ms" -> 0.0015. Throws Error naming the flag.
double quantity(const std::string& flag, const std::string& text, const Units& units) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  std::string known;
  for (const auto& [name, factor] : units) {
    if (problem == std::errc() && name == unit && number > 0) return number * factor;
    if (!name.empty()) known += (known.empty() ? "" : ", ") + name;
  }
  fail(fmt::format("{} {}: expected a number above 0 and one of {}, as in 2.5{}", flag, text, known,
                   units.front().first));
}

double seconds_of(const std::string& flag, const std::string& text) {
  return quantity(flag, text, {{"us", 1e-6}, {"ns", 1e-9}, {"ms", 1e-3}, {"s", 1}});
}
double rate_of(const std::string& flag, const std::string& text) {
  return quantity(flag, text, {{"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}});
}
std::int64_t bytes_of(const std::string& flag, const std::string& text) {
  constexpr double kMost = 4.0 * (1 << 30);  // MPI counts elements in an int
  const double bytes = quantity(
      flag, text, {{"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}});
  if (bytes < 4 || bytes > kMost)
    fail(fmt::format("{} {}: expected 4B (one element) to 4GiB", flag, text));
  return static_cast<std::int64_t>(bytes);
}

// Steps of 8, from 256 KiB on of 4; both ends are in it.
std::vector<std::int64_t> sizes(std::int64_t min_bytes, std::int64_t max_bytes) {
  std::vector<std::int64_t> all{min_bytes};
  for (std::int64_t size = 8; size < max_bytes; size *= size < (256 << 10) ? 8 : 4)
    if (size > min_bytes) all.push_back(size);
  if (max_bytes > min_bytes) all.push_back(max_bytes);
  return all;
}

std::vector<CommCase> cases(const Flags& flags) {
  const std::int64_t min_bytes = bytes_of("--min-bytes", flags.min_bytes);
  const std::int64_t max_bytes = bytes_of("--max-bytes", flags.max_bytes);
  if (min_bytes > max_bytes)
    fail(fmt::format("--min-bytes {} is above --max-bytes {}", flags.min_bytes, flags.max_bytes));
  std::vector<CommCase> all;
  for (const int ranks : flags.ranks)
    for (const std::string& operation : flags.operations) {
      std::int64_t last = 0;  // what is rounded to the same size comes once
      for (const std::int64_t size : sizes(min_bytes, max_bytes)) {
        const CommCase c(bench_operation(operation), ranks, size);
        if (c.bytes() != last) all.push_back(c);
        last = c.bytes();
      }
    }
  return all;
}

// Each rank has two buffers, and of each there may be a second one, MPI's or the plan's.
void check_memory(const std::vector<CommCase>& all) {
  const auto memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const auto need = [](const CommCase& c) {
    return 4.0 * static_cast<double>(c.bytes()) * c.ranks();
  };
  const CommCase& c = *std::max_element(
      all.begin(), all.end(), [&](const auto& a, const auto& b) { return need(a) < need(b); });
  if (need(c) > memory)
    fail(
        fmt::format("{} ranks with {} bytes need {:.1f} GiB, this machine has {:.1f}: lower "
                    "--max-bytes or --ranks",
                    c.ranks(), c.bytes(), need(c) / (1 << 30), memory / (1 << 30)));
}

void print_head(const char* more) {
  fmt::print("{:<10} {:<14} {:>5} {:>10} {:>12} {}\n", "backend", "operation", "ranks", "bytes",
             "seconds", more);
}

void print_case(const std::string& backend, const CommCase& c, double seconds,
                const std::string& more) {
  fmt::print("{:<10} {:<14} {:>5} {:>10} {:>12.4g} {}\n", backend, name_of(c.op()), c.ranks(),
             c.bytes(), seconds, more);
  std::fflush(stdout);
}

nlohmann::ordered_json json_of(const std::string& backend, const CommCase& c, double seconds) {
  return {{"backend", backend},
          {"operation", name_of(c.op())},
          {"ranks", c.ranks()},
          {"bytes", c.bytes()},
          {"seconds", seconds}};
}

// The backends to measure, without those of MPI where it is absent.
std::vector<std::string> backends(const Flags& flags) {
  std::vector<std::string> all = flags.backends;
  if (flags.check) all.emplace_back("mpi-check");
  if (MpiProcesses::available()) return all;
  std::string absent;
  std::erase_if(all, [&](const std::string& backend) {
    if (is_mpi_backend(backend)) absent += (absent.empty() ? "no " : ", no ") + backend;
    return is_mpi_backend(backend);
  });
  if (all.empty()) fail(absent + ": MPI was not found");
  if (!absent.empty()) fmt::print("{}: MPI was not found\n", absent);
  return all;
}

nlohmann::ordered_json measure(const Flags& flags, const std::vector<CommCase>& all) {
  const int cores = available_cores();
  const std::vector<std::string> names = backends(flags);
  double load = 0;  // of the last minute
  getloadavg(&load, 1);
  const double triad = measure_triad_bandwidth(cores);
  fmt::print("{} cores, memory bandwidth (triad) {:.1f} GB/s, load before {:.1f}{}\n", cores,
             triad / 1e9, load, load > 0.5 ? ": others use this machine, too" : "");
  const double before = cores > 1 ? measure_round_trip() : 0;
  print_head("algbw GB/s  busbw GB/s");
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  std::vector<CommRow> rows;
  measure_comm(
      {.cases = all, .seconds = flags.seconds, .backends = names}, [&](const CommRow& row) {
        print_case(row.backend, row.what, row.seconds,
                   fmt::format("{:>10.4g}  {:>10.4g}", row.algbw() / 1e9, row.busbw() / 1e9));
        table.push_back(json_of(row.backend, row.what, row.seconds));
        table.back()["algbw"] = row.algbw();
        table.back()["busbw"] = row.busbw();
        rows.push_back(row);
      });
  const double after = cores > 1 ? measure_round_trip() : 0;
  if (cores > 1)
    fmt::print("a cache line from core to core and back: {:.0f} ns before, {:.0f} ns after\n",
               1e9 * before, 1e9 * after);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const CommRow* raw = same_case(rows, rows[i], "raw-mpi"); raw && raw != &rows[i]) {
      table[i]["times_raw_mpi"] = 1 / speed(rows[i], *raw);
      table[i]["seconds_more_than_raw_mpi"] = more_seconds(rows[i], *raw);
    }
  const nlohmann::ordered_json summary = summarize(rows);
  for (const auto& [name, value] : summary.items())
    fmt::print("{:<80} {:.3g}\n", name, value.get<double>());
  return {{"cores", cores}, {"triad", triad},    {"load", load}, {"round_trip", {before, after}},
          {"rows", table},  {"summary", summary}};
}

Network network_of(const Flags& flags, int ranks) {
  Network network{.link = {seconds_of("--alpha", flags.alpha), 1 / rate_of("--beta", flags.beta)}};
  if (!flags.gamma.empty()) network.reduce_seconds_per_byte = 1 / rate_of("--gamma", flags.gamma);
  if (ranks % flags.nodes != 0)
    fail(fmt::format("--ranks {} is not divisible by --nodes {}", ranks, flags.nodes));
  if (flags.nodes > 1) {
    network.ranks_per_node = ranks / flags.nodes;
    network.card = {seconds_of("--card-alpha", flags.card_alpha),
                    1 / rate_of("--card-beta", flags.card_beta)};
    network.cards_per_node = flags.cards;
  }
  return network;
}

nlohmann::ordered_json emulate(const Flags& flags, const std::vector<CommCase>& all) {
  for (const int ranks : flags.ranks) network_of(flags, ranks);  // errors before the first row
  print_head("     formula");
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  CommEmulator emulator(flags.pace);
  for (const CommCase& c : all) {
    const Network network = network_of(flags, c.ranks());
    const double seconds = emulator.run(c, network);
    table.push_back(json_of("virtual", c, seconds));
    const std::optional<double> formula = seconds_by_formula(c, network);
    if (formula) table.back()["formula"] = *formula;
    print_case("virtual", c, seconds, formula ? fmt::format("{:>12.4g}", *formula) : "");
  }
  if (!flags.trace.empty()) emulator.write_trace(flags.trace);
  return {{"rows", table}};
}

// How much of an all_reduce of two processes computation hides.
nlohmann::ordered_json overlap(const Flags& flags) {
  constexpr int kRanks = 2, kRounds = 9;
  const std::int64_t bytes = bytes_of("--max-bytes", flags.max_bytes);
  if (!MpiProcesses::available()) fail("no mpi: MPI was not found");
  MpiProcesses processes("mpi", kRanks);
  fmt::print("all_reduce of {} bytes, {} ranks, {} cores; seconds\n", bytes, kRanks,
             available_cores());
  fmt::print("{:<22} {:>12} {:>12} {:>12} {:>8}\n", "computation", "all_reduce", "computation",
             "both", "hidden");
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  const auto row = [&](const char* name, const std::string& command) {
    const std::vector<double> x = processes.ask(command);
    if (x.size() != 4) fail(fmt::format("mpi: {} numbers as answer to '{}'", x.size(), command));
    fmt::print("{:<22} {:>12.4g} {:>12.4g} {:>12.4g} {:>8.2f}\n", name, x[0], x[1], x[2], x[3]);
    table.push_back({{"computation", name},
                     {"all_reduce_seconds", x[0]},
                     {"computation_seconds", x[1]},
                     {"both_seconds", x[2]},
                     {"hidden", x[3]}});
  };
  row("on the rank's core", fmt::format("overlap {} {} {}", bytes, kRounds, flags.trace));
  row("elsewhere: it sleeps", fmt::format("overlap_asleep {} {}", bytes, kRounds));
  return {{"ranks", kRanks}, {"bytes", bytes}, {"cores", available_cores()}, {"rows", table}};
}

void add_flags(CLI::App& app, Flags& flags) {
  for (const CommOp op : kBenchOperations) flags.operations.emplace_back(name_of(op));
  app.add_option("--operations", flags.operations, "which")
      ->check(CLI::IsMember(flags.operations))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--ranks", flags.ranks, "how many")
      ->check(CLI::Range(2, 8192))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--min-bytes", flags.min_bytes, "of a rank's largest buffer: 8, 1KiB, 64MiB")
      ->capture_default_str();
  app.add_option("--max-bytes", flags.max_bytes, "likewise")->capture_default_str();
  app.add_option("--json", flags.json, "also write the rows to this file");
  CLI::Option* seconds = app.add_option("--seconds", flags.seconds, "about how long to measure")
                             ->check(CLI::Range(0.0, 86400.0))
                             ->capture_default_str();
  CLI::Option* backends = app.add_option("--backends", flags.backends,
                                         "what to measure: this library on threads and on MPI's "
                                         "processes, loops by hand, MPI itself")
                              ->check(CLI::IsMember(flags.backends))
                              ->delimiter(',')
                              ->capture_default_str();
  CLI::Option* check = app.add_flag(
      "--check", flags.check, "also this library on MPI with the calls of all ranks compared");
  CLI::Option* emulate =
      app.add_flag("--emulate", flags.emulate, "in virtual time, on the network of the flags below")
          ->excludes(seconds)
          ->excludes(backends)
          ->excludes(check);
  app.add_flag("--overlap", flags.overlap,
               "instead: how much of an all_reduce of --max-bytes between 2 processes hides behind "
               "computation")
      ->excludes(emulate)
      ->excludes(seconds)
      ->excludes(backends)
      ->excludes(check);
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->needs(emulate)->capture_default_str();
  };
  add("--alpha", flags.alpha, "latency of a message");
  add("--beta", flags.beta, "bytes that pass a link");
  add("--gamma", flags.gamma, "bytes that a rank adds up; not given: adding takes no time");
  add("--nodes", flags.nodes, "that the ranks are spread over")->check(CLI::Range(1, 8192));
  add("--cards", flags.cards, "of each node, which its ranks share")->check(CLI::Range(1, 8192));
  add("--card-alpha", flags.card_alpha, "latency between nodes");
  add("--card-beta", flags.card_beta, "bytes that pass a card");
  add("--pace", flags.pace, "to watch it: wall seconds that each virtual second takes")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--trace", flags.trace,
                 "of --emulate or --overlap: write what each rank did when (chrome://tracing, "
                 "Perfetto)");
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) try {
  CLI::App app(
      "Measures collectives between threads and between processes, against a bare loop over shared "
      "memory and MPI.");
  aisc::Flags flags;
  aisc::add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  const std::vector<aisc::CommCase> all = aisc::cases(flags);
  aisc::check_memory(all);
  if (!flags.trace.empty() && !flags.emulate && !flags.overlap)
    aisc::fail("--trace requires --emulate or --overlap");
  const nlohmann::ordered_json result = flags.emulate   ? aisc::emulate(flags, all)
                                        : flags.overlap ? aisc::overlap(flags)
                                                        : aisc::measure(flags, all);
  if (!flags.json.empty()) aisc::write_file(flags.json, result.dump(2) + "\n");
  return 0;
} catch (const std::exception& e) {
  std::cerr << "bench_comm: " << e.what() << "\n";
  return 1;
}
