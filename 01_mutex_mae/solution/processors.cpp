#include "01_mutex_mae/processors.h"

namespace aisc {

double peak_flops(const Processor& processor) {
  return processor.cores * processor.clock_hz * processor.flops_per_cycle;
}

double flops_per_cycle_printed(const Processor& processor) {
  return processor.printed_flops / (processor.cores * processor.clock_hz);
}

double flops_per_cycle(int vector_bytes, int lane_bytes, int fma_units) {
  const int lanes = vector_bytes / lane_bytes;
  return 2.0 * lanes * fma_units;
}

std::vector<Processor> processors() {
  const double avx512_f64 = flops_per_cycle(64, 8, 2), avx512_f32 = flops_per_cycle(64, 4, 2);
  return {
      {"Xeon Platinum 8180", 28, 2.5e9, avx512_f64, 1.36e12,
       "F64, two AVX-512 units; 2.5 GHz is the clock of code without AVX"},
      {"  AVX-512 base clock", 28, 1.7e9, avx512_f64, 1.36e12,
       "F64; 1.7 GHz is recalled, not looked up"},
      {"  F32", 28, 2.5e9, avx512_f32, 0, "twice the lanes"},
      {"Tesla K80", 4992, 0.56e9, 2, 8.73e12, "F32, one multiply-add; the base clock"},
      {"  boost clock", 4992, 0.875e9, 2, 8.73e12, "F32; two chips of 2496 at 875 MHz"},
      {"Graphcore IPU (GC2)", 1216, 1.6e9, 16, 31.1e12, "F32, 8 multiply-adds"},
  };
}

Processor this_machine(int cores, double clock_hz, double measured_flops) {
  Processor processor{"this machine", double(cores),      clock_hz, 0,
                      measured_flops, "F32, all measured"};
  processor.flops_per_cycle = flops_per_cycle_printed(processor);
  return processor;
}

}  // namespace aisc
