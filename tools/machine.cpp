// Measures what this machine can do and prints it as one JSON object: `./aisc doctor` reads it. The
// same numbers are the denominators of every utilisation that the benchmarks report. With
// --profile FILE: as a machine for virtual time (common/model/machine.h). With --describe NAME:
// what is known of one of these, or of all.
#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "common/core/flags/command_line.h"
#include "common/core/system/machine.h"
#include "common/model/machine.h"
#include "tools/machine_profile.h"

int main(int argc, char** argv) {
  aisc::CommandLine line("Measures what this machine can do.");
  std::string profile, processor = "a processor", described;
  line.text("--profile", profile, "write a machine for virtual time to this file");
  line.text("--processor", processor, "what it is called there");
  line.text("--describe", described,
            "measure nothing: describe this machine for virtual time, or all");
  if (const auto status = line.parse(argc, argv)) return *status;
  try {
    if (!profile.empty()) {
      aisc::write_machine_profile(profile, processor);
      return 0;
    }
    if (!described.empty()) {
      for (const std::string& name : aisc::machine_names())
        if (described == "all") fmt::print("{}\n", describe(aisc::find_machine(name)));
      if (described != "all") fmt::print("{}", describe(aisc::find_machine(described)));
      return 0;
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "aisc: {}\n", e.what());
    return 1;
  }
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
