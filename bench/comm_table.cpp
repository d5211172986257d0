#include "bench/comm_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/core/system/machine.h"

namespace aisc {

CommTable::CommTable(std::size_t longest_name) : width_(std::max<std::size_t>(longest_name, 10)) {}

void CommTable::print_head(const std::string& more) const {
  fmt::print("{:<{}} {:<14} {:>5} {:>10} {:>12} {}\n", "backend", width_, "operation", "ranks",
             "bytes", "seconds", more);
}

void CommTable::print_row(const std::string& backend, const CommCase& c, double seconds,
                          const std::string& more) const {
  fmt::print("{:<{}} {:<14} {:>5} {:>10} {:>12.4g} {}\n", backend, width_, name_of(c.op()),
             c.ranks(), c.bytes(), seconds, more);
  std::fflush(stdout);
}

nlohmann::ordered_json json_of(const std::string& backend, const CommCase& c, double seconds) {
  return {{"backend", backend},
          {"operation", name_of(c.op())},
          {"ranks", c.ranks()},
          {"bytes", c.bytes()},
          {"seconds", seconds}};
}

std::vector<CommRow> measure_and_show(const MeasureOptions& options, const CommTable& table,
                                      nlohmann::ordered_json& result, const CommColumn& column) {
  const int cores = available_cores();
  double load = 0;  // of the last minute
  getloadavg(&load, 1);
  const double triad = measure_triad_bandwidth(cores);
  fmt::print("{} cores, memory bandwidth (triad) {:.1f} GB/s, load before {:.1f}{}\n", cores,
             triad / 1e9, load, load > 0.5 ? ": others use this machine, too" : "");
  const double before = cores > 1 ? measure_round_trip() : 0;
  table.print_head("algbw GB/s  busbw GB/s" + column.head);
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  std::vector<CommRow> rows;
  measure_comm(options, [&](std::span<const CommRow> its_case) {
    for (const CommRow& row : its_case) {
      const std::string more = column.text ? column.text(row, its_case) : "";
      table.print_row(
          row.backend, row.what, row.seconds,
          fmt::format("{:>10.4g}  {:>10.4g}{}", row.algbw() / 1e9, row.busbw() / 1e9, more));
      lines.push_back(json_of(row.backend, row.what, row.seconds));
      lines.back()["algbw"] = row.algbw();
      lines.back()["busbw"] = row.busbw();
    }
    rows.insert(rows.end(), its_case.begin(), its_case.end());
  });
  const double after = cores > 1 ? measure_round_trip() : 0;
  if (cores > 1)
    fmt::print("a cache line from core to core and back: {:.0f} ns before, {:.0f} ns after\n",
               1e9 * before, 1e9 * after);
  result = {{"cores", cores},
            {"triad", triad},
            {"load", load},
            {"round_trip", {before, after}},
            {"rows", std::move(lines)}};
  return rows;
}

void print_summary(const nlohmann::ordered_json& summary) {
  for (const auto& [name, value] : summary.items())
    fmt::print("{:<80} {:.3g}\n", name, value.get<double>());
}

}  // namespace aisc
