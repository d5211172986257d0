// Dropout: a mask that depends on seed, step and position alone, whoever computes which part of it.
#include <cmath>
#include <cstdint>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

class Dropout : public PerDType {
 protected:
  const Philox random_{7, "dropout", 3};
};
INSTANTIATE_TEST_SUITE_P(Ops, Dropout, kFloatingTypes, dtype_name);

TEST_P(Dropout, MatchesReference) {
  for (const Index n : {0, 1, 3, 17, 255, 256, 257, 5000})
    for (const std::uint64_t first : {0u, 1u, 2u, 3u, 1000u})
      for (const double rate : {0.1, 0.5, 0.9}) {
        const Tensor x = random({n}, "x"), y = unwritten({n});
        ops::dropout(y, x, rate, random_, first);
        const Array expected = reference::dropout(to_array(x), rate, random_, first);
        EXPECT_TRUE(all_close(y, expected.values, rounded_)) << n << " from " << first;
        ops::dropout(x, x, rate, random_, first);
        EXPECT_TRUE(same_bits(x, y)) << "in place";
      }
}

TEST_P(Dropout, DropsOrScalesExactly) {
  const Tensor x = unwritten({1000}), y = unwritten({1000});
  ops::fill(x, 3);
  ops::dropout(y, x, 0.25, random_, 0);  // 3 / 0.75 is exact
  for (const double value : to_doubles(y)) EXPECT_TRUE(value == 0 || value == 4) << value;
}

TEST_P(Dropout, OfRateZeroIsACopy) {
  const Tensor x = random({100}, "x"), y = unwritten({100});
  ops::dropout(y, x, 0, random_, 5);
  EXPECT_TRUE(same_bits(x, y));
}

// However a tensor is cut, the pieces draw the mask of the whole.
TEST_P(Dropout, MaskDoesNotDependOnTheSplit) {
  const Tensor x = random({40, 25}, "x"), whole = unwritten({40, 25}), parts = unwritten({40, 25});
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 33) + 5;  // beyond 32 bits
  ops::dropout(whole, x, 0.3, random_, kFirst);
  const Index cuts[] = {0, 1, 2, 7, 20, 33, 40};
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i)
    ops::dropout(parts.rows(cuts[i], cuts[i + 1]), x.rows(cuts[i], cuts[i + 1]), 0.3, random_,
                 kFirst + static_cast<std::uint64_t>(25 * cuts[i]));
  EXPECT_TRUE(same_bits(whole, parts));
}

// A byte an element says what was kept; of it backward is what drawing again is, to the bit.
TEST_P(Dropout, MaskIsWrittenAsBytes) {
  for (const Index n : {0, 1, 3, 257, 5000})
    for (const std::uint64_t first : {0u, 1u, 1000u}) {
      const Tensor x = unwritten({n}), y = unwritten({n}), mask({n}, DType::U8, device_);
      ops::fill(x, 3);
      ops::dropout(y, x, 0.25, random_, first, mask);
      std::vector<double> kept = to_doubles(y);
      for (double& value : kept) value = value != 0;
      EXPECT_EQ(to_doubles(mask), kept) << n << " from " << first;
      const Tensor dy = random({n}, "dy"), drawn = unwritten({n}), dx = unwritten({n});
      ops::dropout(drawn, dy, 0.25, random_, first);
      ops::dropout_backward(dx, dy, mask, 0.25);
      EXPECT_TRUE(same_bits(dx, drawn)) << n << " from " << first;
      ops::dropout_backward(dy, dy, mask, 0.25);
      EXPECT_TRUE(same_bits(dy, drawn)) << "in place";
    }
}

TEST_P(Dropout, KeepsTheShareItPromises) {
  constexpr Index kCount = 100'000;
  const Tensor x = unwritten({kCount}), y = unwritten({kCount});
  ops::fill(x, 1);
  for (const double rate : {0.1, 0.5, 0.8}) {
    ops::dropout(y, x, rate, random_, 0);
    double kept = 0;
    for (const double value : to_doubles(y)) kept += value != 0;
    const double deviation = std::sqrt(kCount * rate * (1 - rate));
    EXPECT_NEAR(kept, kCount * (1 - rate), 4 * deviation);
  }
}

TEST_P(Dropout, OfAnotherStepOrNameDropsOthers) {
  const Tensor x = unwritten({500}), y = unwritten({500}), z = unwritten({500});
  ops::fill(x, 1);
  ops::dropout(y, x, 0.5, random_, 0);
  ops::dropout(z, x, 0.5, Philox(7, "dropout", 4), 0);
  EXPECT_FALSE(same_bits(y, z));
  ops::dropout(z, x, 0.5, Philox(7, "another", 3), 0);
  EXPECT_FALSE(same_bits(y, z));
}

}  // namespace
}  // namespace aisc
