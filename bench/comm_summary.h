// What one looks at first in the rows of the communication benchmark: how backends compare.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "bench/measure_comm.h"

namespace aisc {

// Of two backends measured in the same rounds: the median of how often `one` fits into `other`.
// Speed drifts on a shared machine, and it drifts for both.
double speed(const CommRow& one, const CommRow& other);
// Likewise the median of the seconds that `one` takes more than `other`.
double more_seconds(const CommRow& one, const CommRow& other);

// The row of another backend with the same case; nullptr if there is none.
const CommRow* same_case(std::span<const CommRow> rows, const CommRow& row,
                         std::string_view backend);

// Numbers by name, as far as the rows have them: some of threads, and for each operation and number
// of ranks how this library on MPI compares with MPI itself at its worst. Short messages are
// compared by difference, since there each call costs something of its own; long ones by ratio.
nlohmann::ordered_json summarize(std::span<const CommRow> rows);

}  // namespace aisc
