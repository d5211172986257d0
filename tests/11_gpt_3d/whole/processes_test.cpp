// Layouts whose ranks are processes: under mpirun (tests/CMakeLists.txt) those of as many ranks as
// there are, else all, with threads.
#include <gtest/gtest.h>

#include <vector>

#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/support/conformance.h"

namespace aisc {
namespace {

const LayoutCase kCases[] = {
    {.dp = 2, .pp = 2, .zero = 1, .schedule = "1f1b"},
    {.pp = 2, .tp = 2, .schedule = "zb-h1", .recompute = true},
    {.dp = 2, .tp = 2, .zero = 3},
    {.dp = 4, .zero = 3, .micro = 1, .group = 2},
    {.dp = 2, .pp = 2, .zero = 3, .schedule = "interleaved", .chunks = 2, .recompute = true},
    {.dp = 2, .pp = 2, .tp = 2, .schedule = "zb-v", .chunks = 2},
    {.dp = 2, .pp = 2, .tp = 2, .zero = 2, .schedule = "1f1b"}};

class LayoutProcesses : public ::testing::TestWithParam<LayoutCase> {};
INSTANTIATE_TEST_SUITE_P(Mixed, LayoutProcesses, ::testing::ValuesIn(kCases));

TEST_P(LayoutProcesses, LeaveWhatOneRankLeaves) {
  const LayoutCase& c = GetParam();
  if (conformance::rank_counts({c.ranks()}) != std::vector<int>{c.ranks()})
    GTEST_SKIP() << "of another number of ranks";
  EXPECT_TRUE(same_steps(serial_of(config_of(c), 2),
                         run_layout({.ranks = c.ranks()}, config_of(c), 2, parts_of(c))));
}

}  // namespace
}  // namespace aisc
