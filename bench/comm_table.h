// How benchmarks of communication show what they measure: lines of text as they come, and JSON.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/measure_comm.h"

namespace aisc {

class CommTable {
 public:
  // The first column is as wide as the longest name that will come, at least 10.
  explicit CommTable(std::size_t longest_name = 0);

  // `more` stands behind the columns that every table has.
  void print_head(const std::string& more) const;
  void print_row(const std::string& backend, const CommCase& c, double seconds,
                 const std::string& more) const;

 private:
  const std::size_t width_;
};

// {"backend", "operation", "ranks", "bytes", "seconds"}
nlohmann::ordered_json json_of(const std::string& backend, const CommCase& c, double seconds);

// A column of a program's own.
struct CommColumn {
  std::string head;
  // The text of a row, given all rows of its case.
  std::function<std::string(const CommRow&, std::span<const CommRow> its_case)> text;
};

// Measures, and prints: the machine, a line for each row, and the machine once more. `result`
// becomes {"cores", "triad", "load", "round_trip", "rows"}, rows with "algbw" and "busbw".
std::vector<CommRow> measure_and_show(const MeasureOptions& options, const CommTable& table,
                                      nlohmann::ordered_json& result,
                                      const CommColumn& column = {});

// A name and its number, one line each.
void print_summary(const nlohmann::ordered_json& summary);

}  // namespace aisc
