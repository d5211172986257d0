#include "bench/comm_summary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "common/core/median.h"

namespace aisc {
namespace {

constexpr std::int64_t kShortBytes = 64 << 10;  // up to here a message counts as short

template <class Compare>
double median_of_rounds(const CommRow& one, const CommRow& other, Compare compare) {
  std::vector<double> values;
  for (std::size_t i = 0; i < one.rounds.size(); ++i)
    values.push_back(compare(one.rounds[i], other.rounds[i]));
  return median(std::move(values));
}

const CommRow* find(std::span<const CommRow> rows, std::string_view backend, const CommCase& c) {
  for (const CommRow& row : rows)
    if (row.backend == backend && row.what.op() == c.op() && row.what.ranks() == c.ranks() &&
        row.what.bytes() == c.bytes())
      return &row;
  return nullptr;
}

// Keeps the larger of the value that the name has and this one.
void keep_worst(nlohmann::ordered_json& summary, const std::string& name, double value) {
  if (!summary.contains(name) || summary[name].get<double>() < value) summary[name] = value;
}

}  // namespace

double speed(const CommRow& one, const CommRow& other) {
  return median_of_rounds(one, other, [](double a, double b) { return b / a; });
}

double more_seconds(const CommRow& one, const CommRow& other) {
  return median_of_rounds(one, other, [](double a, double b) { return a - b; });
}

const CommRow* same_case(std::span<const CommRow> rows, const CommRow& row,
                         std::string_view backend) {
  return find(rows, backend, row.what);
}

nlohmann::ordered_json summarize(std::span<const CommRow> rows) {
  nlohmann::ordered_json summary;
  const auto compare = [&](const char* name, const char* other, int ranks, std::int64_t bytes) {
    const CommCase c(CommOp::AllReduce, ranks, bytes);
    const CommRow* ours = find(rows, "thread", c);
    const CommRow* theirs = find(rows, other, c);
    if (ours && theirs) summary[name] = speed(*ours, *theirs);
  };
  compare("speed against bare, 2 ranks, 64 MiB all_reduce", "bare", 2, 64 << 20);
  compare("speed against raw-mpi, 2 ranks, 1 MiB all_reduce", "raw-mpi", 2, 1 << 20);
  compare("speed against raw-mpi, 8 ranks, 16 MiB all_reduce", "raw-mpi", 8, 16 << 20);
  if (const CommRow* ours = find(rows, "thread", {CommOp::AllReduce, 2, 8}))
    summary["microseconds, 2 ranks, 8 bytes all_reduce"] = 1e6 * ours->seconds;
  for (const char* backend : {"mpi", "mpi-check"})
    for (const CommRow& row : rows) {
      const CommRow* theirs = same_case(rows, row, "raw-mpi");
      if (row.backend != backend || !theirs) continue;
      const std::string head = fmt::format("{} against raw-mpi, {} ranks, {}: ", backend,
                                           row.what.ranks(), name_of(row.what.op()));
      if (row.what.bytes() > kShortBytes)
        keep_worst(summary, head + "times its seconds above 64 KiB", 1 / speed(row, *theirs));
      else
        keep_worst(summary, head + "microseconds more up to 64 KiB",
                   1e6 * more_seconds(row, *theirs));
    }
  return summary;
}

}  // namespace aisc
