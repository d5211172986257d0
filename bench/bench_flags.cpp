#include "bench/bench_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "bench/mpi_processes.h"
#include "common/core/error.h"
#include "common/core/system/memory.h"

namespace aisc {
namespace {

// Steps of 8, from 256 KiB on of 4; both ends are in it.
std::vector<std::int64_t> sizes(std::int64_t min_bytes, std::int64_t max_bytes) {
  std::vector<std::int64_t> all{min_bytes};
  for (std::int64_t size = 8; size < max_bytes; size *= size < (256 << 10) ? 8 : 4)
    if (size > min_bytes) all.push_back(size);
  if (max_bytes > min_bytes) all.push_back(max_bytes);
  return all;
}

// Each rank has two buffers, and of each there may be a second one, MPI's or the plan's.
void check_memory(const std::vector<CommCase>& all) {
  const auto memory = static_cast<double>(available_memory());
  const auto need = [](const CommCase& c) {
    return 4.0 * static_cast<double>(c.bytes()) * c.ranks();
  };
  const CommCase& c = *std::max_element(
      all.begin(), all.end(), [&](const auto& a, const auto& b) { return need(a) < need(b); });
  if (need(c) > memory)
    fail(
        fmt::format("{} ranks with {} bytes need {:.1f} GiB, {:.1f} are free: lower "
                    "--max-bytes or --ranks",
                    c.ranks(), c.bytes(), need(c) / (1 << 30), memory / (1 << 30)));
}

}  // namespace

void add_bench_flags(CommandLine& line, BenchFlags& flags) {
  std::vector<std::string> operations;
  for (const CommOp op : kBenchOperations) operations.emplace_back(name_of(op));
  line.texts("--operations", flags.operations, "which", operations);
  line.numbers("--ranks", flags.ranks, 2, 8192, "how many");
  line.text("--min-bytes", flags.min_bytes, "of a rank's largest buffer: 8, 1KiB, 64MiB");
  line.text("--max-bytes", flags.max_bytes, "likewise");
  line.number("--seconds", flags.seconds, 0, 86400, "about how long to measure");
  line.texts("--backends", flags.backends,
             "what to measure: this library on threads and on MPI's processes, loops by hand, "
             "MPI itself",
             flags.backends);
}

std::vector<CommCase> cases_of(const BenchFlags& flags) {
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
  check_memory(all);
  return all;
}

std::vector<std::string> present_backends(std::vector<std::string> backends) {
  if (MpiProcesses::available()) return backends;
  std::string absent;
  std::erase_if(backends, [&](const std::string& backend) {
    if (is_mpi_backend(backend)) absent += (absent.empty() ? "no " : ", no ") + backend;
    return is_mpi_backend(backend);
  });
  if (backends.empty()) fail(absent + ": MPI was not found");
  if (!absent.empty()) fmt::print("{}: MPI was not found\n", absent);
  return backends;
}

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

std::int64_t bytes_of(const std::string& flag, const std::string& text) {
  constexpr double kMost = 4.0 * (1 << 30);  // MPI counts elements in an int
  const double bytes = quantity(
      flag, text, {{"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}});
  if (bytes < 4 || bytes > kMost)
    fail(fmt::format("{} {}: expected 4B (one element) to 4GiB", flag, text));
  return static_cast<std::int64_t>(bytes);
}

}  // namespace aisc
