#include "common/core/system/machine.h"

#include <omp.h>
#include <sched.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "common/core/tensor.h"

namespace aisc {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else  // SSE, NEON
constexpr int kVectorBytes = 16;
#endif

// Independent chains that keep the units for multiply-adds busy: units times cycles that a result
// takes. x86 has two of four cycles, and 16 registers (AVX); ARM's widest cores have four of four,
// and 32.
#if defined(__aarch64__)
constexpr int kChains = 20;
#else
constexpr int kChains = 12;
#endif

// Keeps a value in a vector register and hides it from the optimiser, which would otherwise notice
// that nobody needs the result.
template <class V>
void keep(V& value) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#else
  asm volatile("" : "+w"(value));
#endif
}

// sum += term by the instruction that takes a cycle. The compiler's own choice is at times another.
void add(std::int64_t& sum, std::int64_t term) {
#if defined(__x86_64__)
  asm volatile("add %1, %0" : "+r"(sum) : "r"(term) : "cc");
#else
  asm volatile("add %0, %0, %1" : "+r"(sum) : "r"(term));
#endif
}

template <class T>
double multiply_adds(std::int64_t rounds) {
  using Vector [[gnu::vector_size(kVectorBytes)]] = T;
  Vector sums[kChains] = {};
  Vector a = Vector{} + T(0.5), b = Vector{} + T(0.25);
  keep(b);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 20
    for (Vector& sum : sums) {  // unrolled, so that all sums stay in registers
      keep(a);                  // else the product would be taken once for all
      sum += a * b;  // in this form, for ARM's multiply-add adds to one of its own operands
      keep(sum);
    }
  return 2.0 * kChains * (kVectorBytes / sizeof(T)) * static_cast<double>(rounds);
}

#if defined(__x86_64__)
bool has_bf16_dot() { return __builtin_cpu_supports("avx512bf16"); }

// Tiles: the processor has them (leaf 7, EDX bit 22) and the system keeps their registers (XCR0).
bool has_bf16_tiles() {
  constexpr unsigned kTiles = 1u << 22, kRegisters = 3u << 17, kXcr0 = 1u << 27;
  unsigned a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kXcr0)) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kTiles)) return false;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kRegisters) == kRegisters;
}

// AMD's run the 512-bit dot product as often as a multiply-add, of half as many products; Intel's
// less often, by half or more.
bool runs_bf16_dot_fast() { return has_bf16_dot() && __builtin_cpu_is("amd"); }

[[gnu::target("avx512f,avx512bf16")]] double bf16_dot_products(std::int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512i ones = _mm512_set1_epi16(0x3f80);  // 32 times 1.0 in BF16
  asm volatile("" : "+v"(ones));
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 16
    for (__m512& sum : sums) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(sum) : "v"(ones));
  return 2.0 * kChains * 32 * static_cast<double>(rounds);
}
#elif defined(__aarch64__)
bool has_bf16_dot() { return getauxval(AT_HWCAP2) & HWCAP2_BF16; }
bool has_bf16_tiles() { return false; }
bool runs_bf16_dot_fast() { return has_bf16_dot(); }

// BFMMLA: 2 x 4 by 4 x 2 numbers in BF16, added to 2 x 2 in F32.
double bf16_dot_products(std::int64_t rounds) {
  using Vector [[gnu::vector_size(16)]] = float;
  using Halves [[gnu::vector_size(16)]] = std::uint16_t;
  Vector sums[kChains] = {};
  Halves ones = Halves{} + std::uint16_t{0x3f80};  // 8 times 1.0
  asm volatile("" : "+w"(ones));
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 20
    for (Vector& sum : sums)
      asm volatile(".arch_extension bf16\n\tbfmmla %0.4s, %1.8h, %1.8h" : "+w"(sum) : "w"(ones));
  return 2.0 * kChains * 16 * static_cast<double>(rounds);
}
#else
bool has_bf16_dot() { return false; }
bool has_bf16_tiles() { return false; }
bool runs_bf16_dot_fast() { return false; }
double bf16_dot_products(std::int64_t) { return 0; }
#endif

// Binds the threads of parallel regions of `threads` threads to a core each, as long as it lives,
// if there are as many from number `first` on; else they stay where they are.
class Bound {
 public:
  explicit Bound(int threads, int first = 0) : before_(static_cast<std::size_t>(threads)) {
    const Cores cores(usable_cores());
    if (cores.count() < first + threads) before_.clear();
#pragma omp parallel num_threads(threads)
    if (!before_.empty()) {
      const int thread = omp_get_thread_num();
      before_[static_cast<std::size_t>(thread)] = Cores();
      cores.bind(first + thread);
    }
  }
  ~Bound() {
    const auto threads = static_cast<int>(before_.size());
    if (threads == 0) return;
#pragma omp parallel num_threads(threads)
    before_[static_cast<std::size_t>(omp_get_thread_num())].release();
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

 private:
  std::vector<Cores> before_;  // where each thread could run
};

// What `work`, which returns how many FLOPs it did for a number of rounds, does on all threads at
// once. The slowest counts.
template <class Work>
PeakSlice slice_of(Work work, int threads, std::int64_t rounds) {
  double flops = 0, begin = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flops)
  {
#pragma omp barrier
#pragma omp master
    begin = seconds_now();
    flops += work(rounds);
  }
  const double seconds = seconds_now() - begin;
  return {flops / seconds, seconds};
}

PeakSlice slice_in(DType dtype, int threads, std::int64_t rounds) {
  if (dtype == DType::F64) return slice_of(multiply_adds<double>, threads, rounds);
  if (dtype == DType::BF16 && has_bf16_dot()) return slice_of(bf16_dot_products, threads, rounds);
  return slice_of(multiply_adds<float>, threads, rounds);
}

// Best bytes/s of several passes of `pass` over vectors of 2^26 floats.
template <class Pass>
double bandwidth(int vectors, double bytes_per_element, int threads, Pass pass) {
  constexpr std::int64_t kCount = std::int64_t{1} << 26;
  const Bound bound(threads);
  CpuDevice device;
  std::array<Tensor, 3> tensors;
  std::array<float*, 3> data{};
  for (int v = 0; v < vectors; ++v) {
    const auto i = static_cast<std::size_t>(v);
    tensors[i] = Tensor({kCount}, DType::F32, device, Purpose::Workspace);
    float* x = data[i] = tensors[i].data<float>();
#pragma omp parallel for simd num_threads(threads)
    for (std::int64_t k = 0; k < kCount; ++k) x[k] = 1.0f;  // touches the pages where they are used
  }
  double best = 0;
  for (int trial = 0; trial < 4; ++trial) {
    const double begin = seconds_now();
    pass(data, kCount);
    best = std::max(best, bytes_per_element * kCount / (seconds_now() - begin));
  }
  return best;
}

}  // namespace

std::vector<int> usable_cores() {
  std::vector<int> ids;
  const int places = omp_get_proc_bind() == omp_proc_bind_false ? 0 : omp_get_num_places();
  for (int place = 0; place < places; ++place) {
    const auto begin = ids.size();
    ids.resize(begin + static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data() + begin);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids.empty() ? Cores().ids() : ids;
}

int available_cores() {
  const auto count = static_cast<int>(usable_cores().size());
  return count > 0 ? count : std::max(1, omp_get_num_procs());
}

Cores::Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int id = 0; id < CPU_SETSIZE; ++id)
    if (CPU_ISSET(id, &set)) ids_.push_back(id);
}

// A refusal is no error: the thread then runs where the system likes.
void Cores::bind(int thread) const {
  if (ids_.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(ids_[static_cast<std::size_t>(thread) % ids_.size()], &set);
  sched_setaffinity(0, sizeof set, &set);
}

void Cores::release() const {
  if (ids_.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int id : ids_) CPU_SET(id, &set);
  sched_setaffinity(0, sizeof set, &set);
}

double measure_clock_hz() {
  constexpr std::int64_t kRounds = 1'000'000, kAdditions = 16;
  double best = 0;
  for (int trial = 0; trial < 10; ++trial) {
    std::int64_t sum = trial;
    const std::int64_t term = trial;
    const double begin = seconds_now();
    for (std::int64_t r = 0; r < kRounds; ++r)
#pragma GCC unroll 16
      for (std::int64_t k = 0; k < kAdditions; ++k) add(sum, term);
    best = std::max(best, kRounds * kAdditions / (seconds_now() - begin));
  }
  return best;
}

PeakSlice measure_peak_slice(DType dtype, int threads, int first_core) {
  const double begin = seconds_now();
  PeakSlice slice;
  {
    const Bound bound(threads, first_core);
    slice = slice_in(dtype, threads, 3'000'000);
  }
  return {slice.flops_per_second, seconds_now() - begin};
}

double measure_peak_flops(DType dtype, int threads) {
  return settled_peak([&] { return measure_peak_slice(dtype, threads); }).flops();
}

DType product_arithmetic(DType dtype) {
  return dtype == DType::BF16 && !bf16_dot_is_fast() ? DType::F32 : dtype;
}

double measure_read_bandwidth(int threads) {
  float total = 0;
  const double rate = bandwidth(1, 4, threads, [&](const auto& x, std::int64_t count) {
    const float* a = x[0];
    float sum = 0;
#pragma omp parallel for simd num_threads(threads) reduction(+ : sum)
    for (std::int64_t k = 0; k < count; ++k) sum += a[k];
    total += sum;
  });
  keep(total);
  return rate;
}

double measure_triad_bandwidth(int threads) {
  return bandwidth(3, 12, threads, [&](const auto& x, std::int64_t count) {
    float* a = x[0];
    const float *b = x[1], *c = x[2];
#pragma omp parallel for simd num_threads(threads)
    for (std::int64_t k = 0; k < count; ++k) a[k] = b[k] + 3.0f * c[k];
  });
}

bool bf16_dot_is_fast() { return runs_bf16_dot_fast() || has_bf16_tiles(); }

}  // namespace aisc
