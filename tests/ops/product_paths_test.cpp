// The ways to multiply that `matmul` chooses from by type and processor, called directly, so that
// each is tested on every machine: also the one that this processor would not take.
#include "common/ops/cpu/products.h"

#include <cmath>
#include <ostream>
#include <string>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;
using ops::Transpose;

using Way = void (*)(View, ConstView, ConstView, const ops::MatmulOptions&);
struct Path {
  const char* name;
  Way way;
  DType in, out;
};

std::ostream& operator<<(std::ostream& stream, const Path& path) { return stream << path.name; }

class ProductPaths : public ::testing::TestWithParam<Path> {
 protected:
  // op(a) is (M, K) and op(b) (K, N). Overwritten with bias and factor, then accumulated onto.
  void expect_product(Index M, Index N, Index K, Transpose t) {
    const auto& [name, way, in, out_type] = GetParam();
    const bool first = t == Transpose::First, second = t == Transpose::Second;
    const Tensor a = random_tensor({1, first ? K : M, first ? M : K}, in, device_, "a");
    const Tensor b = random_tensor({1, second ? N : K, second ? K : N}, in, device_, "b");
    const Tensor bias = random_tensor({N}, in, device_, "bias", 5), out({M, N}, out_type, device_);
    const View left = a.view().reshaped({a.shape()[1], a.shape()[2]});
    const View right = b.view().reshaped({b.shape()[1], b.shape()[2]});
    const Array product = reference::matmul(to_array(a), to_array(b), t);
    const Tolerance tolerance{tolerance_of(out_type).relative, std::sqrt(double(K))};

    way(out, left, right, {.transpose = t, .bias = bias});
    EXPECT_TRUE(all_close(out, plus_bias(product, bias).values, tolerance))
        << M << " x " << N << " x " << K;

    const Array before = to_array(out);
    way(out, left, right, {.transpose = t, .alpha = -0.5, .into = Into::Accumulate});
    const Array sum = reference::add(before, reference::scale(product, -0.5));
    EXPECT_TRUE(all_close(out, sum.values, tolerance)) << M << " x " << N << " x " << K;
  }
  CpuDevice device_{{.poison = true}};
  NoLeak no_leak_{device_};
};

std::string path_name(const ::testing::TestParamInfo<Path>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Ops, ProductPaths,
    ::testing::Values(Path{"LibraryF32", cpu::library_product, DType::F32, DType::F32},
                      Path{"LibraryBF16", cpu::library_product, DType::BF16, DType::BF16},
                      Path{"LibraryBF16ToF32", cpu::library_product, DType::BF16, DType::F32},
                      Path{"MatrixBF16", cpu::matrix_product, DType::BF16, DType::BF16},
                      Path{"MatrixBF16ToF32", cpu::matrix_product, DType::BF16, DType::F32},
                      Path{"WidenedBF16", cpu::widened_product, DType::BF16, DType::BF16},
                      Path{"WidenedBF16ToF32", cpu::widened_product, DType::BF16, DType::F32},
                      Path{"LibraryF16", cpu::library_product, DType::F16, DType::F16},
                      Path{"LibraryF16ToF32", cpu::library_product, DType::F16, DType::F32},
                      Path{"WidenedF16", cpu::widened_product, DType::F16, DType::F16},
                      Path{"WidenedF16ToF32", cpu::widened_product, DType::F16, DType::F32},
                      Path{"PlainF64", cpu::plain_product, DType::F64, DType::F64},
                      Path{"PlainF32", cpu::plain_product, DType::F32, DType::F32},
                      Path{"PlainBF16", cpu::plain_product, DType::BF16, DType::BF16},
                      Path{"PlainBF16ToF32", cpu::plain_product, DType::BF16, DType::F32},
                      Path{"PlainF16", cpu::plain_product, DType::F16, DType::F16},
                      Path{"PlainF16ToF32", cpu::plain_product, DType::F16, DType::F32}),
    path_name);

TEST_P(ProductPaths, MatchReference) {
  if (GetParam().way == cpu::matrix_product && !cpu::runs_matrix_product())
    GTEST_SKIP() << "this processor has no matrix instruction for BF16";
  for (const Transpose t : {Transpose::None, Transpose::First, Transpose::Second}) {
    expect_product(1, 1, 1, t);
    expect_product(17, 33, 65, t);
    expect_product(50, 300, 130, t);
  }
}

// Factors of more than a million elements: what is done in pieces has several of them.
class WidenedProducts : public ProductPaths {};
INSTANTIATE_TEST_SUITE_P(
    Ops, WidenedProducts,
    ::testing::Values(Path{"BF16", cpu::widened_product, DType::BF16, DType::BF16},
                      Path{"BF16ToF32", cpu::widened_product, DType::BF16, DType::F32},
                      Path{"F16", cpu::widened_product, DType::F16, DType::F16}),
    path_name);

TEST_P(WidenedProducts, MatchReferenceOverSeveralPieces) {
  expect_product(4, 1100, 1030, Transpose::None);
  expect_product(1100, 1030, 4, Transpose::First);
  expect_product(4, 1100, 1030, Transpose::Second);
}

}  // namespace
}  // namespace aisc
