// Measures what this machine can do and prints it as one JSON object: `./aisc doctor` reads it. The
// same numbers are the denominators of every utilisation that the benchmarks report.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/core/system/machine.h"

int main() {
  const int cores = aisc::available_cores();
  nlohmann::ordered_json machine = {
      {"cores", cores},
      {"clock_hz", aisc::measure_clock_hz()},
      {"f64_peak_flops", aisc::measure_peak_flops(aisc::DType::F64, cores)},
      {"f32_peak_flops", aisc::measure_peak_flops(aisc::DType::F32, cores)},
      {"bf16_peak_flops", aisc::measure_peak_flops(aisc::DType::BF16, cores)},
      {"bf16_dot_is_fast", aisc::bf16_dot_is_fast()},
      {"read_bandwidth", aisc::measure_read_bandwidth(cores)},
      {"triad_bandwidth", aisc::measure_triad_bandwidth(cores)},
      {"gpus", aisc::describe_gpus()},
  };
  fmt::print("{}\n", machine.dump(2));
}
