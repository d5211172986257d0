// Permutations move elements and change nothing: all comparisons are exact.
#include <algorithm>
#include <array>
#include <numeric>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using Order = std::array<int, 4>;

class Permute : public PerDType {
 protected:
  Shape permuted(const Shape& shape, const Order& order) {
    Shape out = shape;
    for (int d = 0; d < shape.rank(); ++d) out = out.with(d, shape[order[size_t(d)]]);
    return out;
  }
  // Every order of the dimensions, against the reference, and back by the inverse order.
  void expect_all_orders(const Shape& shape) {
    const Tensor x = random(shape, "x"), back = unwritten(shape);
    Order order{0, 1, 2, 3};
    do {
      const Tensor out = unwritten(permuted(shape, order));
      ops::permute(out, x, order);
      EXPECT_EQ(to_doubles(out), reference::permute(to_array(x), order).values);
      Order inverse{};
      for (int d = 0; d < shape.rank(); ++d) inverse[size_t(order[size_t(d)])] = d;
      ops::permute(back, out, inverse);
      EXPECT_TRUE(same_bits(x, back));
    } while (std::next_permutation(order.begin(), order.begin() + shape.rank()));
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, Permute, kFloatingTypes, dtype_name);

TEST_P(Permute, TransposesAMatrix) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}), out = unwritten({3, 2});
  ops::permute(out, x, {1, 0});
  EXPECT_EQ(to_doubles(out), (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

// (B, T, H, D) to (B, H, T, D), the one that attention needs: element (0, 1, 2, d) by hand.
TEST_P(Permute, BringsHeadsBeforeTokens) {
  const Index T = 3, H = 4, D = 2;
  std::vector<double> values(size_t(T * H * D));
  std::iota(values.begin(), values.end(), 0.0);
  const Tensor x = tensor(values, {1, T, H, D}), out = unwritten({1, H, T, D});
  ops::permute(out, x, {0, 2, 1, 3});
  EXPECT_EQ(to_doubles(out)[(2 * T + 1) * D], (1 * H + 2) * D);
}

TEST_P(Permute, MatchesReferenceInEveryOrderAndBack) {
  expect_all_orders({1, 1});
  expect_all_orders({17, 65});
  expect_all_orders({5, 1, 7});
  expect_all_orders({3, 16, 33});
  expect_all_orders({2, 3, 5, 7});
  expect_all_orders({3, 17, 4, 16});
}

TEST_P(Permute, OfNothingIsNothing) {
  EXPECT_NO_THROW(ops::permute(unwritten({3, 0}), unwritten({0, 3}), {1, 0}));
}

}  // namespace
}  // namespace aisc
