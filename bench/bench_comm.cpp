// Measures collectives of this library, on threads and on processes under MPI, against a bare loop
// over shared memory and against MPI itself; or runs them in virtual time on a network that one
// describes; or measures how much of an all_reduce hides behind computation.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/bench_flags.h"
#include "bench/comm_summary.h"
#include "bench/comm_table.h"
#include "bench/emulate_comm.h"
#include "bench/mpi_processes.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

struct Flags {
  BenchFlags bench;
  bool check = false;

  bool overlap = false;

  bool emulate = false;
  std::string alpha = "5us", beta = "12.5GB/s", gamma;
  int nodes = 1, cards = 1;
  std::string card_alpha = "5us", card_beta = "12.5GB/s";
  double pace = 0;
  std::string trace;
};

double seconds_of(const std::string& flag, const std::string& text) {
  return quantity(flag, text, {{"us", 1e-6}, {"ns", 1e-9}, {"ms", 1e-3}, {"s", 1}});
}
double rate_of(const std::string& flag, const std::string& text) {
  return quantity(flag, text, {{"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}});
}

nlohmann::ordered_json measure(const Flags& flags, const std::vector<CommCase>& all) {
  std::vector<std::string> backends = flags.bench.backends;
  if (flags.check) backends.emplace_back("mpi-check");
  std::vector<Contender> contenders;
  for (const std::string& backend : present_backends(backends)) contenders.push_back({backend});
  nlohmann::ordered_json result;
  const std::vector<CommRow> rows =
      measure_and_show({.cases = all,
                        .seconds = flags.bench.seconds,
                        .contenders = [&](const CommCase&) { return contenders; }},
                       CommTable(), result);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const CommRow* raw = same_case(rows, rows[i], "raw-mpi"); raw && raw != &rows[i]) {
      result["rows"][i]["times_raw_mpi"] = 1 / speed(rows[i], *raw);
      result["rows"][i]["seconds_more_than_raw_mpi"] = more_seconds(rows[i], *raw);
    }
  result["summary"] = summarize(rows);
  print_summary(result["summary"]);
  return result;
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
  for (const int ranks : flags.bench.ranks)
    network_of(flags, ranks);  // errors before the first row
  const CommTable shown;
  shown.print_head("     formula");
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  CommEmulator emulator(flags.pace);
  for (const CommCase& c : all) {
    const Network network = network_of(flags, c.ranks());
    const double seconds = emulator.run(c, network);
    table.push_back(json_of("virtual", c, seconds));
    const std::optional<double> formula = seconds_by_formula(c, network);
    if (formula) table.back()["formula"] = *formula;
    shown.print_row("virtual", c, seconds, formula ? fmt::format("{:>12.4g}", *formula) : "");
  }
  if (!flags.trace.empty()) emulator.write_trace(flags.trace);
  return {{"rows", table}};
}

// How much of an all_reduce of two processes computation hides.
nlohmann::ordered_json overlap(const Flags& flags) {
  constexpr int kRanks = 2, kRounds = 9;
  const std::int64_t bytes = bytes_of("--max-bytes", flags.bench.max_bytes);
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

void add_flags(CommandLine& line, Flags& flags) {
  flags.bench.ranks = {2, 4, 8};
  flags.bench.min_bytes = "8B";
  flags.bench.max_bytes = "64MiB";
  for (const CommOp op : kBenchOperations) flags.bench.operations.emplace_back(name_of(op));
  add_bench_flags(line, flags.bench);
  line.given("--check", flags.check,
             "also this library on MPI with the calls of all ranks compared");
  line.given("--emulate", flags.emulate, "in virtual time, on the network of the flags below");
  line.excludes("--emulate", {"--seconds", "--backends", "--check"});
  line.given("--overlap", flags.overlap,
             "instead: how much of an all_reduce of --max-bytes between 2 processes hides behind "
             "computation");
  line.excludes("--overlap", {"--emulate", "--seconds", "--backends", "--check"});
  line.text("--alpha", flags.alpha, "latency of a message");
  line.text("--beta", flags.beta, "bytes that pass a link");
  line.text("--gamma", flags.gamma, "bytes that a rank adds up; not given: adding takes no time");
  line.number("--nodes", flags.nodes, 1, 8192, "that the ranks are spread over");
  line.number("--cards", flags.cards, 1, 8192, "of each node, which its ranks share");
  line.text("--card-alpha", flags.card_alpha, "latency between nodes");
  line.text("--card-beta", flags.card_beta, "bytes that pass a card");
  line.number("--pace", flags.pace, 0, 1e6,
              "to watch it: wall seconds that each virtual second takes");
  for (const char* flag : {"--alpha", "--beta", "--gamma", "--nodes", "--cards", "--card-alpha",
                           "--card-beta", "--pace"})
    line.needs(flag, "--emulate");
  line.text("--trace", flags.trace,
            "of --emulate or --overlap: write what each rank did when (chrome://tracing, "
            "Perfetto)");
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::measuring_program(
      argc, argv,
      "Measures collectives between threads and between processes, against a bare loop over shared "
      "memory and MPI.",
      [&](aisc::CommandLine& line) { aisc::add_flags(line, flags); },
      [&] {
        const std::vector<aisc::CommCase> all = aisc::cases_of(flags.bench);
        if (!flags.trace.empty() && !flags.emulate && !flags.overlap)
          aisc::fail("--trace requires --emulate or --overlap");
        return flags.emulate   ? aisc::emulate(flags, all)
               : flags.overlap ? aisc::overlap(flags)
                               : aisc::measure(flags, all);
      });
}
