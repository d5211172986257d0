// What of the sums on a GPU needs none: how many blocks there are, and what a problem looks like
// there.
#include "01_mutex_mae/mae_gpu.h"

#include <gtest/gtest.h>

#include "tests/01_mutex_mae/watched.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

TEST(GpuBlocks, DependOnTheNumberOfSamplesAlone) {
  EXPECT_EQ(gpu_blocks(0), 0);
  EXPECT_EQ(gpu_blocks(1), 1);
  EXPECT_EQ(gpu_blocks(2048), 1);
  EXPECT_EQ(gpu_blocks(2049), 2);
  EXPECT_EQ(gpu_blocks(std::int64_t{1} << 40), kGpuMostBlocks);
}

TEST(GpuProblemOnTheHost, HasNoKernels) {
  CpuDevice host;
  const Problem problem = integer_problem(3, 2);
  const GpuProblem there(problem, host);
  EXPECT_EQ(there.x.values<float>()[1], problem.x[2]) << "feature 0 of sample 1";
  for (const GpuVariant& variant : gpu_variants()) {
    const std::string message = message_of([&] { variant.run(there); });
    EXPECT_NE(message.find("mae_gpu: "), std::string::npos) << variant.name << ": " << message;
  }
}

}  // namespace
}  // namespace aisc
