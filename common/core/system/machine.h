// What the machine at hand can do, measured: the denominators of every utilisation in this course.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/core/device.h"
#include "common/core/dtype.h"
#include "common/core/system/peak.h"

namespace aisc {

// Cores that this process may run on, not those that the machine has: the calling thread's affinity
// mask, or all of OpenMP's places where the environment has it bind threads to them (OMP_PROC_BIND,
// OMP_PLACES): it then has bound the first thread to one of them before main().
int available_cores();
std::vector<int> usable_cores();  // their numbers; empty where the system does not tell

// Some cores, by default those that the calling thread may run on now, for threads that measure: a
// system may leave two busy threads on one core for seconds while another is idle, which makes two
// threads slower than one.
class Cores {
 public:
  Cores();
  explicit Cores(std::vector<int> ids) : ids_(std::move(ids)) {}
  const std::vector<int>& ids() const { return ids_; }
  int count() const { return static_cast<int>(ids_.size()); }
  // The calling thread, number `thread` of several, stays on core `thread` mod count() until it
  // calls release(). Threads that it starts meanwhile stay there, too.
  void bind(int thread) const;
  void release() const;

 private:
  std::vector<int> ids_;  // empty where the system does not tell: nothing is bound then
};

// Cycles per second of one core while it computes, from additions that wait for each other, one a
// cycle. Takes about 50 ms. What is printed on a processor is rarely what it runs at.
double measure_clock_hz();

// FLOP/s of `threads` threads that do nothing but multiply-adds in registers, for about 6 ms: F64,
// F32, or for BF16 the dot-product instruction where the processor has it (else F32's rate). Here
// and below each thread has a core of its own if the caller may use as many: of the usable cores
// those from number `first_core` on, so that several ranks can measure at once, each on its own.
PeakSlice measure_peak_slice(DType dtype, int threads, int first_core = 0);

// The fastest of many slices (settled_peak). Takes about 0.4 s, on a busy machine up to 1.
double measure_peak_flops(DType dtype, int threads);

// The arithmetic whose peak a run in `dtype` is measured against: its own, or F32's where BF16
// products are better done in F32 (see bf16_dot_is_fast).
DType product_arithmetic(DType dtype);

// Bytes/s of reading 256 MiB, and of a[i] = b[i] + s * c[i] over 3 x 256 MiB (STREAM's triad, which
// counts 12 bytes an element in F32), with `threads` threads. Best of several runs.
double measure_read_bandwidth(int threads);
double measure_triad_bandwidth(int threads);

// True if BF16 products are faster here than F32's: processors of AMD that have the dot product
// (Zen 4: twice F32's rate, measured), Intel's with tiles (AMX), and ARM's with FEAT_BF16 (not
// measured: an instruction of four times FMLA's work). Intel's dot product alone runs at half the
// rate of F32 (measured): there products are better done in F32. It is read from what
// the processor is, never measured: a stopwatch would choose now one and now the other on a busy
// machine, and a run that is started again would end in other bits.
bool bf16_dot_is_fast();

struct GpuFacts {
  std::string name;             // "NVIDIA H200"
  std::string driver, runtime;  // the newest CUDA that the driver knows, and this program's: "13.0"
  std::int64_t used_bytes = 0;  // of its memory, by all programs
  std::int64_t total_bytes = 0;  // what it has
};
// What the GPU says of itself that a device stands for; nothing of a CPU.
std::optional<GpuFacts> gpu_facts(const Device& device);

// One line a GPU, empty where there is none or the program was built without CUDA.
std::string describe_gpus();

}  // namespace aisc
