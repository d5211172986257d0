// What every backend is asked: each operation, for each number of ranks, count and type, against
// values that a formula gives. Values are small integers, exact in every type.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/sanitized.h"

namespace aisc::conformance {

enum class Backend {
  Plain,       // threads, collectives as they do them best
  Plans,       // threads, collectives as default plans
  TinyChunks,  // threads, buffers cut into pieces of 64 bytes
  Late,        // under LateComm
  Delayed,     // under DelayedComm
  Virtual,     // in virtual time
  Nodes,       // in virtual time, two ranks to a node, which share a network card
  // Threads with buffers on a GPU.
  Cuda,       // all on GPU 0, staged
  CudaPlans,  // the same, collectives as default plans
  CudaLate,   // under LateComm
  Nccl,       // a GPU each
  NcclPlans,
  // Of processes; the others are threads.
  Mpi,           // as it is
  MpiUnchecked,  // calls are not compared
  MpiTiny,       // messages cut into pieces of 64 bytes
  MpiPlans,      // collectives as default plans, whatever their size
  MpiLate,       // under LateComm
  MpiCuda        // buffers on GPU 0, staged
};
const char* name_of(Backend backend);
LaunchOptions options_of(Backend backend, int ranks);
inline bool is_virtual(Backend backend) {
  return backend == Backend::Virtual || backend == Backend::Nodes;
}
inline bool is_of_processes(Backend backend) { return backend >= Backend::Mpi; }
inline bool is_nccl(Backend backend) {
  return backend == Backend::Nccl || backend == Backend::NcclPlans;
}
// Those with buffers on GPUs are among the backends where this was built with CUDA.
inline bool has_gpu_buffers(Backend backend) {
  return (backend >= Backend::Cuda && backend <= Backend::NcclPlans) || backend == Backend::MpiCuda;
}
// Why so many ranks of a backend cannot run here, for want of GPUs; empty: they can.
std::string lacks_gpus(Backend backend, int ranks);

// Those of `wanted` that there are where this program runs: by itself those of threads, under
// mpirun those of processes.
std::vector<Backend> backends(const std::vector<Backend>& wanted);
std::vector<Backend> backends();  // of all
// Numbers of ranks to test: by itself these (fewer under sanitizers, which see the same accesses at
// fewer ranks), under mpirun as many as there are processes.
inline std::vector<int> usual_counts() {
  return kSanitized ? std::vector<int>{1, 3, 4} : std::vector<int>{1, 2, 3, 4, 7};
}
std::vector<int> rank_counts(std::vector<int> of_threads = usual_counts());

// A test for each backend.
class EachBackend : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const std::string reason = lacks_gpus(GetParam(), 1); !reason.empty())
      GTEST_SKIP() << reason;
  }
  // Those of conformance::rank_counts() for which there are GPUs.
  std::vector<int> rank_counts(std::vector<int> of_threads = usual_counts()) const;
  // All ranks run `body`, for each of rank_counts().
  void run(const std::function<void(Rank)>& body) const;
  void run_on(int ranks, const std::function<void(Rank)>& body) const {
    launch(options_of(GetParam(), ranks), body);
  }
};
std::string name_of_case(const ::testing::TestParamInfo<Backend>& test);

// Element i of a buffer.
using Values = std::function<double(std::int64_t)>;

// What rank `source` sends: different between ranks and neighbours. sent_by: from `begin` of it.
double sent(int source, std::int64_t i);
Values sent_by(int source, std::int64_t begin = 0);
// Chunks of `count` elements: chunk r is what rank r sends, from element `begin` of it.
Values chunks_of_all(std::int64_t count, std::int64_t begin = 0);
double fold(ReduceOp op, double a, double b);
// What a rank contributes to a reduction, and the result over ranks [0, size).
Values summand(ReduceOp op, int rank);
Values reduced(ReduceOp op, int size, std::int64_t begin = 0);
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min,
                                          ReduceOp::Max};

// A buffer between two strips of memory that nobody may touch; not aligned.
class Guarded {
 public:
  Guarded(std::int64_t count, DType dtype, Device& device, const Values& values);
  Guarded(std::int64_t count, DType dtype, Device& device);  // for outputs: 0xFF bytes

  View view() const { return view_; }
  View part(std::int64_t begin, std::int64_t count) const { return view_.flat(begin, count); }
  // Fails the test unless the elements are these, and the strips what they were.
  void expect(const Values& values, const std::string& what) const;

 private:
  Tensor memory_;
  View view_;
};

// Runs test(count, dtype) for counts {size + 1, 1000} of every type, {0, 1, size - 1} of F32 and
// U8, and 65,537 of F32. With chunks: the count of one of `size` chunks, of which the largest make
// up that many.
void for_each_buffer(int size, const std::function<void(std::int64_t, DType)>& test);
void for_each_chunk(int size, const std::function<void(std::int64_t, DType)>& test);
// "all_reduce of 3 x F32 on rank 1 of 4"
std::string describe(const char* call, std::int64_t count, DType dtype, const Rank& rank);

}  // namespace aisc::conformance
