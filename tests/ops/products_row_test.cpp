// The product of one row, called directly for every type: `matmul` takes it only for short ones.
#include <cmath>

#include "common/ops/cpu/products.h"
#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;
using ops::Transpose;

class RowProduct : public PerDType {
 protected:
  // out (1, N) = a (1, K) b (N, K)^T + bias, then out += -0.5 a b^T, for an `out` of either type.
  void expect_product(Index N, Index K, DType out_type) {
    const Tensor a = random({1, K}, "a"), b = random({N, K}, "b"), bias = random({N}, "bias", 5);
    const Tensor out({1, N}, out_type, device_);
    const Tolerance tolerance{tolerance_of(out_type).relative, std::sqrt(double(K))};
    const Array product =
        reference::matmul(to_array(a.view().reshaped({1, 1, K})),
                          to_array(b.view().reshaped({1, N, K})), Transpose::Second);
    cpu::row_product(out, a, b, {.transpose = Transpose::Second, .bias = bias});
    EXPECT_TRUE(all_close(out, plus_bias(product, bias).values, tolerance)) << N << " x " << K;

    const Array sum = reference::add(to_array(out), reference::scale(product, -0.5));
    cpu::row_product(out, a, b,
                     {.transpose = Transpose::Second, .alpha = -0.5, .into = Into::Accumulate});
    EXPECT_TRUE(all_close(out, sum.values, tolerance)) << N << " x " << K;
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, RowProduct, kTypesOnCpu, dtype_name);

// Rows shorter and longer than the 64 lanes of a sum; more and fewer rows than a thread's piece.
TEST_P(RowProduct, MatchesReference) {
  for (const Index N : {1, 3, 16, 33, 300})
    for (const Index K : {1, 5, 63, 64, 65, 128, 257}) {
      expect_product(N, K, dtype_);
      if (is_short()) expect_product(N, K, DType::F32);
    }
}

TEST_P(RowProduct, WithAnyNumberOfThreadsHasTheSameBits) {
  const Tensor a = random({1, 130}, "a"), b = random({301, 130}, "b");
  const Tensor expected = unwritten({1, 301}), out = unwritten({1, 301});
  cpu::row_product(expected, a, b, {.transpose = Transpose::Second});
  with_threads({1, 2, 3, 7}, [&](int threads) {
    device_.zero(out);
    cpu::row_product(out, a, b, {.transpose = Transpose::Second});
    EXPECT_TRUE(same_bits(out, expected)) << threads;
  });
}

// What `matmul` chooses: a row of BF16 or F16 is summed like the row alone, bit for bit.
TEST_P(RowProduct, IsTheWayOfShortTypes) {
  if (!is_short()) return;
  const Tensor a = random({1, 200}, "a"), b = random({50, 200}, "b");
  const Tensor expected = unwritten({1, 50}), out = unwritten({1, 50});
  cpu::row_product(expected, a, b, {.transpose = Transpose::Second});
  const std::int64_t allocations = device_.ledger().allocations;
  ops::matmul(out, a, b, {.transpose = Transpose::Second});
  EXPECT_EQ(device_.ledger().allocations - allocations, 1);  // the row, widened: nothing else is
  EXPECT_TRUE(same_bits(out, expected));
}

// A product over no columns is zero; over no rows it is nothing.
TEST_P(RowProduct, OfNothingIsZero) {
  const Tensor out = unwritten({1, 3});
  cpu::row_product(out, unwritten({1, 0}), unwritten({3, 0}), {.transpose = Transpose::Second});
  EXPECT_EQ(to_doubles(out), (std::vector<double>{0, 0, 0}));
  EXPECT_NO_THROW(ops::matmul(unwritten({1, 0}), unwritten({1, 4}), unwritten({0, 4}),
                              {.transpose = Transpose::Second}));
}

}  // namespace
}  // namespace aisc
