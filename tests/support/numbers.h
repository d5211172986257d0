// Numbers against those expected, said in words for a person who wrote the code: where, found,
// expected, and the usual cause, where the numbers are those of a known mistake.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/core/tensor.h"

namespace aisc {

// What somebody gets who made it.
struct KnownMistake {
  std::string why;  // "nobody divided by the number of ranks"
  std::vector<double> numbers;
};

// Of floating numbers on the host; "2 ranks, rank 1: gradients" is a `where`. Differences up to
// tolerance * (1 + |expected|) are none. A failure says
//
//   2 ranks, rank 1: gradients[0] is 10, expected 5; 3 of 4 numbers are wrong.
//   All numbers are as if nobody divided by the number of ranks.
::testing::AssertionResult numbers_are(const std::string& where, ConstView found,
                                       const std::vector<double>& expected,
                                       const std::vector<KnownMistake>& mistakes = {},
                                       double tolerance = 1e-12);

}  // namespace aisc
