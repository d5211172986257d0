// Compares the module's algorithms, run as plans over this library's own sends and receives, with
// the collectives that MPI has, and on threads with those of the backend. Rows are named
// backend:algorithm; those without an algorithm are what they are compared with.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "09_collectives/named.h"
#include "bench/bench_flags.h"
#include "bench/comm_summary.h"
#include "bench/comm_table.h"
#include "common/comm/simulate.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

// Of what is cut into segments or parts: a few of them fit into a processor's caches.
constexpr std::int64_t kPieceBytes = 2 << 20;
// Long buffers are for these: they are also measured in parts.
constexpr std::string_view kInParts[] = {"ring", "rabenseifner"};

struct Flags {
  BenchFlags bench{.operations = {name_of(CommOp::AllReduce)},
                   .ranks = {4},
                   .min_bytes = "4KiB",
                   .max_bytes = "16MiB"};
  std::vector<std::string> algorithms;
};

// The ways in which an algorithm is measured: as it is, and with what it may be told, as far as
// that makes a difference to it: segments or parts of kPieceBytes. Two levels only on nodes, of as
// few ranks as divide them all.
std::vector<NamedAlgorithm> usual_ways(const Algorithm& algorithm, const CommCase& c) {
  const Collective call = call_of(c.op(), c.ranks(), c.bytes());
  const auto matters = [&](const Tuning& tuning) {
    const auto plan = [&](const Tuning& x) { return algorithm.plan(call, 0, c.ranks(), x); };
    return plan(tuning).to_string() != plan({}).to_string();
  };
  int node = 2;
  while (c.ranks() % node != 0) ++node;
  const Tuning on_nodes{.ranks_per_node = node};
  if (matters(on_nodes)) return {{&algorithm, on_nodes}};

  std::vector<NamedAlgorithm> ways{{&algorithm}};
  const auto pieces = static_cast<int>(std::max<std::int64_t>(1, c.bytes() / kPieceBytes));
  const Tuning in_segments{.segments = pieces};
  if (matters(in_segments)) ways.push_back({&algorithm, in_segments});
  const bool in_parts =
      c.op() == CommOp::AllReduce &&
      std::find(std::begin(kInParts), std::end(kInParts), algorithm.name) != std::end(kInParts);
  if (in_parts && pieces > 1) ways.push_back({.algorithm = &algorithm, .parts = pieces});
  return ways;
}

std::string_view head_of(std::string_view name) { return name.substr(0, name.find('/')); }

// Throws Error where a chosen name stands for nothing in all of the operations, or says what makes
// no sense in one that has it.
void check_names(const std::vector<std::string>& chosen,
                 const std::vector<std::string>& operations) {
  for (const std::string& name : chosen) {
    bool is_known = false;
    for (const std::string& operation : operations) {
      const CommOp op = bench_operation(operation);
      for (const Algorithm& algorithm : algorithms()) {
        if (algorithm.op != op || algorithm.name != head_of(name)) continue;
        is_known = true;
        algorithm_named(op, name);
      }
    }
    // Of several operations the first one's error is as good as any.
    if (!is_known) algorithm_named(bench_operation(operations.front()), name);
  }
}

// The algorithms that are measured, by their names in the table, in the order of algorithms();
// those that are chosen by nothing but their name in all the usual ways. Exercises that nobody has
// solved are left out.
std::vector<std::string> names_of(const std::vector<std::string>& chosen, const CommCase& c,
                                  std::set<std::string>& left_out) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.op != c.op()) continue;
    const std::vector<std::string> alone{std::string(algorithm.name)};
    for (const std::string& name : chosen.empty() ? alone : chosen) {
      if (head_of(name) != algorithm.name) continue;
      if (name != algorithm.name) {
        add(name);
        continue;
      }
      try {
        for (const NamedAlgorithm& way : usual_ways(algorithm, c)) add(name_of(way));
      } catch (const NotImplemented& e) {
        left_out.insert(fmt::format("{} {}: {}", algorithm.name, name_of(c.op()), e.what()));
      }
    }
  }
  return names;
}

// What a row is compared with; empty for what is measured for comparison only.
std::string baseline_of(const std::string& name) {
  if (name.starts_with("mpi")) return "raw-mpi";
  return name.starts_with("thread:") ? "thread" : "";
}

// Its seconds as a multiple of its baseline's in the same rounds; nothing where that is not there.
std::optional<double> times_baseline(const CommRow& row, std::span<const CommRow> rows) {
  const CommRow* baseline = same_case(rows, row, baseline_of(row.backend));
  if (!baseline) return std::nullopt;
  return 1 / speed(row, *baseline);
}

// "times_raw_mpi"
std::string times_name(std::string baseline) {
  std::replace(baseline.begin(), baseline.end(), '-', '_');
  return "times_" + baseline;
}

std::string text_of_bytes(std::int64_t bytes) {
  if (bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

// For each operation and number of ranks what the longest buffers took, the fastest first.
nlohmann::ordered_json summary_of(std::span<const CommRow> rows) {
  std::map<std::tuple<int, CommOp>, std::int64_t> longest;
  for (const CommRow& row : rows) {
    std::int64_t& bytes = longest[{row.what.ranks(), row.what.op()}];
    bytes = std::max(bytes, row.what.bytes());
  }
  nlohmann::ordered_json summary;
  for (const auto& [key, bytes] : longest)
    for (const char* baseline : {"raw-mpi", "thread"}) {
      std::vector<std::pair<double, std::string>> lines;
      const auto [ranks, op] = key;
      for (const CommRow& row : rows) {
        if (row.what.ranks() != ranks || row.what.op() != op || row.what.bytes() != bytes) continue;
        if (baseline_of(row.backend) != baseline) continue;
        if (const std::optional<double> times = times_baseline(row, rows))
          lines.emplace_back(*times, row.backend);
      }
      std::sort(lines.begin(), lines.end());
      for (const auto& [times, name] : lines)
        summary[fmt::format("{}, {} ranks, {} {}: {}", name, ranks, text_of_bytes(bytes),
                            name_of(op), times_name(baseline))] = times;
    }
  return summary;
}

nlohmann::ordered_json measure(const Flags& flags) {
  const std::vector<CommCase> cases = cases_of(flags.bench);
  check_names(flags.algorithms, flags.bench.operations);
  const std::vector<std::string> backends = present_backends(flags.bench.backends);
  std::set<std::string> left_out;
  const auto contenders = [&](const CommCase& c) {
    std::vector<Contender> all;
    for (const std::string& backend : backends) {
      all.push_back({backend});
      if (backend != "thread" && backend != "mpi") continue;
      for (const std::string& name : names_of(flags.algorithms, c, left_out))
        all.push_back({backend, name});
    }
    return all;
  };
  std::size_t longest_name = 0;
  for (const CommCase& c : cases)
    for (const Contender& x : contenders(c)) longest_name = std::max(longest_name, x.name().size());
  for (const std::string& reason : left_out) fmt::print("left out: {}\n", reason);

  nlohmann::ordered_json result;
  const CommColumn times{"  times", [](const CommRow& row, std::span<const CommRow> its_case) {
                           const std::optional<double> x = times_baseline(row, its_case);
                           return x ? fmt::format("  {:>5.2f}", *x) : "";
                         }};
  const std::vector<CommRow> rows = measure_and_show({.cases = cases,
                                                      .seconds = flags.bench.seconds,
                                                      .contenders = contenders,
                                                      .algorithms = plan_named,
                                                      .rank_program = "mpi_ranks_09_collectives"},
                                                     CommTable(longest_name), result, times);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const std::optional<double> x = times_baseline(rows[i], rows))
      result["rows"][i][times_name(baseline_of(rows[i].backend))] = *x;
  result["summary"] = summary_of(rows);
  print_summary(result["summary"]);
  return result;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  flags.bench.seconds = 50;  // a minute with what is around them
  return aisc::measuring_program(
      argc, argv,
      "Compares the module's algorithms, on processes with the collectives of MPI and on threads "
      "with those of the backend. The column `times` is the time as a multiple of theirs.",
      [&](aisc::CommandLine& line) {
        aisc::add_bench_flags(line, flags.bench);
        line.texts("--algorithms", flags.algorithms,
                   "which (all): ring, or with what it is told ring/parts=8, "
                   "double_tree/segments=16, two_level/ranks_per_node=2");
      },
      [&] { return aisc::measure(flags); });
}
