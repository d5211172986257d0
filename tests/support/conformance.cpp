#include "tests/support/conformance.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/delayed_comm.h"
#include "tests/support/has_cuda.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc::conformance {
namespace {

constexpr std::int64_t kLargeCount = 65537;
constexpr std::int64_t kStrip = 5;          // elements before and behind a buffer
constexpr unsigned char kUntouched = 0xA5;  // what they are made of
constexpr std::uint64_t kDelaySeed = 20240;
constexpr DType kTypes[] = {DType::F64, DType::F32, DType::BF16, DType::F16,
                            DType::I64, DType::I32, DType::U8};

// What a rank contributes: at most 5, so that the sum over 7 ranks is an integer that BF16 holds;
// for products 1 or 2, so that the product over 7 ranks is at most 128, which U8 holds.
constexpr int kPeriod = 10;  // element i + 10 is element i
double element_of(ReduceOp op, int rank, std::int64_t i) {
  return static_cast<double>(1 + (i + 3 * rank) % (op == ReduceOp::Product ? 2 : 5));
}

void for_each_small_count(int size, const std::function<void(std::int64_t, DType)>& test) {
  for (const std::int64_t count : {0, 1, size - 1})
    for (const DType dtype : {DType::F32, DType::U8}) test(count, dtype);
  for (const std::int64_t count : {size + 1, 1000})
    for (const DType dtype : kTypes) test(count, dtype);
}

bool is_built(Backend backend) {
  return is_nccl(backend) ? has_nccl() : !has_gpu_buffers(backend) || has_cuda();
}

}  // namespace

const char* name_of(Backend backend) {
  constexpr const char* kNames[] = {
      "Plain", "Plans",        "TinyChunks", "Late",     "Delayed", "Virtual",
      "Nodes", "Cuda",         "CudaPlans",  "CudaLate", "Nccl",    "NcclPlans",
      "Mpi",   "MpiUnchecked", "MpiTiny",    "MpiPlans", "MpiLate", "MpiCuda"};
  return kNames[static_cast<std::size_t>(backend)];
}

LaunchOptions options_of(Backend backend, int ranks) {
  LaunchOptions options{.ranks = ranks, .device = {.poison = true}};
  options.backend =
      is_of_processes(backend) ? LaunchOptions::Backend::Mpi : LaunchOptions::Backend::Threads;
  if (has_gpu_buffers(backend)) options.device.kind = DeviceKind::Cuda;
  if (is_nccl(backend)) {
    options.between_gpus = LaunchOptions::BetweenGpus::Nccl;
  } else if (has_gpu_buffers(backend)) {
    options.device.index = 0;
    options.between_gpus = LaunchOptions::BetweenGpus::Staged;
  }
  switch (backend) {
    case Backend::MpiUnchecked:
      options.check_calls = false;
      break;
    case Backend::MpiTiny:
      options.internals.message_bytes = 64;
      break;
    case Backend::Plans:
    case Backend::CudaPlans:
    case Backend::NcclPlans:
    case Backend::MpiPlans:
      options.plans = default_plans();
      break;
    case Backend::TinyChunks:
      options.internals.chunk_bytes = 64;
      options.internals.inline_bytes = 0;
      break;
    case Backend::Late:
    case Backend::CudaLate:
    case Backend::MpiLate:
      options.internals.decorate = make_late_comm;
      break;
    case Backend::Delayed:
      options.internals.decorate = [](std::unique_ptr<Communicator> world) {
        return make_delayed_comm(std::move(world), kDelaySeed);
      };
      break;
    case Backend::Nodes:
    case Backend::Virtual:
      options.network = Network{.link = {.latency_seconds = 0x1p-10, .seconds_per_byte = 0x1p-20},
                                .reduce_seconds_per_byte = 0x1p-22,
                                .ranks_per_node = backend == Backend::Nodes ? 2 : 0,
                                .card = {.latency_seconds = 0x1p-8, .seconds_per_byte = 0x1p-18}};
      break;
    default:
      break;
  }
  return options;
}

std::vector<Backend> backends(const std::vector<Backend>& wanted) {
  const bool processes = started_processes().has_value();
  std::vector<Backend> list;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(list), [=](Backend backend) {
    return is_of_processes(backend) == processes && is_built(backend);
  });
  return list;
}

std::string lacks_gpus(Backend backend, int ranks) {
  if (!has_gpu_buffers(backend)) return {};
  const int needed = is_nccl(backend) ? ranks : 1;
  if (gpu_count() >= needed) return {};
  return std::to_string(needed) + " GPUs are needed, there are " + std::to_string(gpu_count());
}

std::vector<Backend> backends() {
  std::vector<Backend> all;
  for (int i = 0; i <= static_cast<int>(Backend::MpiCuda); ++i)
    all.push_back(static_cast<Backend>(i));
  return backends(all);
}

std::vector<int> rank_counts(std::vector<int> of_threads) {
  const std::optional<Processes> processes = started_processes();
  return processes ? std::vector<int>{processes->size} : std::move(of_threads);
}

std::vector<int> EachBackend::rank_counts(std::vector<int> of_threads) const {
  std::vector<int> counts = conformance::rank_counts(std::move(of_threads));
  std::erase_if(counts, [&](int ranks) { return !lacks_gpus(GetParam(), ranks).empty(); });
  return counts;
}

void EachBackend::run(const std::function<void(Rank)>& body) const {
  for (const int ranks : rank_counts()) {
    run_on(ranks, body);
    if (HasFailure()) FAIL() << "with " << ranks << " ranks";
  }
}

std::string name_of_case(const ::testing::TestParamInfo<Backend>& test) {
  return name_of(test.param);
}

double fold(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::Sum:
      return a + b;
    case ReduceOp::Product:
      return a * b;
    case ReduceOp::Min:
      return std::min(a, b);
    case ReduceOp::Max:
      return std::max(a, b);
  }
  return 0;
}

double sent(int source, std::int64_t i) { return static_cast<double>((i * 7 + source * 31) % 251); }

Values sent_by(int source, std::int64_t begin) {
  return [=](std::int64_t i) { return sent(source, begin + i); };
}

Values chunks_of_all(std::int64_t count, std::int64_t begin) {
  return [=](std::int64_t i) { return sent(static_cast<int>(i / count), begin + i % count); };
}

Values summand(ReduceOp op, int rank) {
  return [=](std::int64_t i) { return element_of(op, rank, i); };
}

Values reduced(ReduceOp op, int size, std::int64_t begin) {
  std::array<double, kPeriod> results{};
  for (int i = 0; i < kPeriod; ++i) {
    double& result = results[static_cast<std::size_t>(i)];
    result = element_of(op, 0, i);
    for (int rank = 1; rank < size; ++rank) result = fold(op, result, element_of(op, rank, i));
  }
  return [=](std::int64_t i) { return results[static_cast<std::size_t>((begin + i) % kPeriod)]; };
}

Guarded::Guarded(std::int64_t count, DType dtype, Device& device)
    : Guarded(count, dtype, device, Values()) {}

Guarded::Guarded(std::int64_t count, DType dtype, Device& device, const Values& values)
    : memory_({count + 2 * kStrip}, dtype, device), view_(memory_.view().flat(kStrip, count)) {
  CpuDevice host;
  const Tensor all(memory_.shape(), dtype, host);
  std::memset(all.view().raw(), kUntouched, all.bytes());
  const View inside = all.view().flat(kStrip, count);
  if (values) {
    std::vector<double> numbers(static_cast<std::size_t>(count));
    double* to = numbers.data();
    for (std::int64_t i = 0; i < count; ++i) to[i] = values(i);
    write_doubles(inside, numbers);
  } else if (count > 0) {
    std::memset(inside.raw(), 0xFF, inside.bytes());
  }
  device.copy(memory_, all);
}

void Guarded::expect(const Values& values, const std::string& what) const {
  CpuDevice host;
  const Tensor all(memory_.shape(), memory_.dtype(), host);
  memory_.device().copy(all, memory_);
  const std::vector<double> numbers = to_doubles(all.view().flat(kStrip, view_.count()));
  const double* found = numbers.data();
  for (std::int64_t i = 0, count = view_.count(); i < count; ++i) {
    const double expected = values(i), value = found[i];
    if (value != expected) {
      ADD_FAILURE() << what << ": element " << i << " is " << value << ", expected " << expected;
      return;
    }
  }
  const auto* bytes = static_cast<const unsigned char*>(all.view().raw());
  const std::size_t begin = static_cast<std::size_t>(kStrip) * size_of(memory_.dtype());
  const auto untouched = [](unsigned char byte) { return byte == kUntouched; };
  EXPECT_TRUE(std::all_of(bytes, bytes + begin, untouched)) << what << ": written before its begin";
  EXPECT_TRUE(std::all_of(bytes + begin + view_.bytes(), bytes + memory_.bytes(), untouched))
      << what << ": written behind its end";
}

void for_each_buffer(int size, const std::function<void(std::int64_t, DType)>& test) {
  for_each_small_count(size, test);
  test(kLargeCount, DType::F32);
}

void for_each_chunk(int size, const std::function<void(std::int64_t, DType)>& test) {
  for_each_small_count(size, test);
  test((kLargeCount + size - 1) / size, DType::F32);
}

std::string describe(const char* call, std::int64_t count, DType dtype, const Rank& rank) {
  return std::string(call) + " of " + std::to_string(count) + " x " + aisc::name_of(dtype) +
         " on rank " + std::to_string(rank.world.rank()) + " of " +
         std::to_string(rank.world.size());
}

}  // namespace aisc::conformance
