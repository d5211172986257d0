// What ranks that are processes have asked for goes on while they compute: a thread of each process
// looks after it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "common/comm/launch.h"
#include "tests/support/conformance.h"

namespace aisc {
namespace {

using conformance::Backend;

// Looks at nothing but the clock, and takes a core meanwhile.
void compute(std::chrono::milliseconds duration) {
  const auto end = std::chrono::steady_clock::now() + duration;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// Times as long as elsewhere that things may take here: in an emulator (cmake/tests.cmake).
int slower() {
  const char* text = std::getenv("AISC_SLOWER");
  return text ? std::atoi(text) : 1;
}

// A rank computes for 50 ms and does not look after what it has asked for, which is done all the
// same. Tried again where other programs had the cores.
class Overlap : public ::testing::TestWithParam<Backend> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Overlap);  // without mpirun

TEST_P(Overlap, AllReduceIsDoneWhenTheComputationEnds) {
  constexpr int kTries = 20;
  launch(conformance::options_of(GetParam(), started_processes()->size), [](Rank rank) {
    for (const std::int64_t count : {2L, 1L << 18, 1L << 22}) {  // 8 bytes, 1 MiB, 16 MiB
      const Tensor x = Tensor::zeros({count}, DType::F32, rank.device);
      const Tensor done = Tensor::zeros({1}, DType::I32, rank.device);  // by how many ranks
      for (int i = 0; i < kTries && done.values<std::int32_t>()[0] < rank.world.size(); ++i) {
        rank.world.barrier();
        Work sum = rank.world.all_reduce(x);
        compute(slower() * std::chrono::milliseconds(50));
        done.data<std::int32_t>()[0] = sum.done() ? 1 : 0;
        sum.wait();
        rank.world.all_reduce(done).wait();
      }
      EXPECT_EQ(done.values<std::int32_t>()[0], rank.world.size())
          << "of the ranks' all_reduces of " << 4 * count << " bytes were done";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Overlap,
                         ::testing::ValuesIn(conformance::backends({Backend::Mpi,
                                                                    Backend::MpiUnchecked})),
                         conformance::name_of_case);

}  // namespace
}  // namespace aisc
