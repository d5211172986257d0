// Is the parallel program the serial program? The comparison behind every equivalence test: losses,
// gradients and weights of two runs, by parameter name.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace aisc {

struct Rank;
struct Parameter;
struct OptimizerSlice;

// What a run leaves behind. Tensors are whole: a test gathers the shards of a layout first.
struct RunRecord {
  std::vector<double> losses;                            // one a step
  std::vector<double> norms{};                           // before clipping, one a step; or none
  std::map<std::string, std::vector<double>> gradients;  // of the last step
  std::map<std::string, std::vector<double>> weights;    // after it
};

// The project's promise for every layout of ranks in F64.
inline constexpr double kSameRunF64 = 1e-10;

// A loss and a norm may differ by `tolerance` times the larger of itself and 1; an element of a
// tensor by `tolerance` times the larger of itself and its tensor's root mean square. A failure
// names the first step, the first gradient and the first weight that differ, and all names that
// only one run has. Norms are compared where both runs have them.
::testing::AssertionResult same_run(const RunRecord& serial, const RunRecord& other,
                                    double tolerance);

// The whole parameters of a layout, of which each rank has parts: gradients and weights, on every
// rank. Collective. Fails the test where two ranks have other bits of one element, or none has it.
RunRecord gather_whole(const Rank& rank, const std::vector<Parameter*>& parameters);
// Likewise of the slices that each rank's optimizer updates.
RunRecord gather_whole(const Rank& rank, const std::vector<OptimizerSlice>& slices);

}  // namespace aisc
