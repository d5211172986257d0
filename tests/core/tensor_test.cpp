// Shapes, tensors and views: who owns what, which part of it, and what is refused.
#include "common/core/tensor.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Values = std::vector<double>;

// ---- shape --------------------------------------------------------------------------------------

TEST(Shape, CountsElementsAndRows) {
  const Shape s{2, 3, 5};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s.count(), 30);
  EXPECT_EQ(s.rows(), 6);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(s[-1], 5);
  EXPECT_EQ(s.to_string(), "(2, 3, 5)");
  EXPECT_EQ(s.with(-1, 7), (Shape{2, 3, 7}));
  EXPECT_NE(s, (Shape{2, 15}));
  EXPECT_EQ((Shape{4, 0, 2}).count(), 0);
}

TEST(Shape, OfRankZeroIsOneElement) {
  EXPECT_EQ(Shape().count(), 1);
  EXPECT_EQ(Shape().rows(), 1);
  EXPECT_EQ(Shape().to_string(), "()");
}

TEST(Shape, RefusesWhatItCannotHold) {
  EXPECT_TRUE(error_says([] { Shape({1, 2, 3, 4, 5}); }, {"at most 4", "5"}));
  EXPECT_TRUE(error_says([] { Shape({1, -2}); }, {"an extent of -2", "0 or more"}));
  EXPECT_TRUE(error_says([] { (void)Shape({1, 2})[2]; }, {"dimension 2", "rank 2"}));
  EXPECT_TRUE(error_says([] { (void)Shape({1, 2})[-3]; }, {"dimension -3", "rank 2"}));
  EXPECT_TRUE(error_says([] { (void)Shape({1}).with(1, 3); }, {"dimension 1", "rank 1"}));
}

// ---- tensor -------------------------------------------------------------------------------------

class Tensors : public ::testing::Test {
 protected:
  Tensor counting(const Shape& shape, DType dtype = DType::F32) {
    Values values(static_cast<std::size_t>(shape.count()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
    return from_doubles(values, shape, dtype, device_);
  }
  CpuDevice device_{{.poison = true}};
  NoLeak no_leak_{device_};
};

static_assert(!std::is_copy_constructible_v<Tensor>, "a tensor is never copied silently");
static_assert(std::is_nothrow_move_constructible_v<Tensor>);

TEST_F(Tensors, KnowWhatTheyAre) {
  const Tensor x({2, 3}, DType::BF16, device_, Purpose::Gradients);
  EXPECT_TRUE(x);
  EXPECT_EQ(x.count(), 6);
  EXPECT_EQ(x.bytes(), 12u);
  EXPECT_EQ(x.dtype(), DType::BF16);
  EXPECT_EQ(&x.device(), &device_);
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Gradients, 12));
  EXPECT_FALSE(Tensor());
  EXPECT_EQ(Tensor().count(), 0);
}

TEST_F(Tensors, AreNaNUntilWrittenAndZerosAreZero) {
  for (const double value : to_doubles(Tensor({9}, DType::F16, device_))) EXPECT_NE(value, value);
  EXPECT_EQ(to_doubles(Tensor::zeros({3}, DType::F32, device_)), Values(3, 0.0));
}

TEST_F(Tensors, SharedHaveOneMemory) {
  Tensor x = counting({3});
  EXPECT_EQ(x.owners(), 1);
  Tensor y = x.share();
  EXPECT_EQ(x.owners(), 2);
  y.data<float>()[1] = 50;
  EXPECT_EQ(to_doubles(x), (Values{0, 50, 2}));
  x = Tensor();
  EXPECT_EQ(y.owners(), 1);
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Activations, 12));
  y = Tensor();
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Activations, 0));
}

TEST_F(Tensors, ClonesHaveTheirOwn) {
  const Tensor x({2}, DType::F64, device_, Purpose::Optimizer);
  write_doubles(x, {1, 2});
  const Tensor y = x.clone();
  y.data<double>()[0] = 9;
  EXPECT_EQ(to_doubles(x), (Values{1, 2}));
  EXPECT_EQ(to_doubles(y), (Values{9, 2}));
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Optimizer, 32));
  EXPECT_FALSE(Tensor().clone());
}

TEST_F(Tensors, MoveAndLeaveNothingBehind) {
  Tensor x = counting({4});
  const float* data = x.data<float>();
  Tensor y = std::move(x);
  EXPECT_FALSE(x);  // NOLINT(bugprone-use-after-move): what is left is part of the contract
  EXPECT_FALSE(x.view());
  EXPECT_EQ(y.data<float>(), data);
  y = counting({2});  // the old memory goes back
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Activations, 8));
  Tensor& same = y;
  y = std::move(same);
  EXPECT_EQ(to_doubles(y), (Values{0, 1}));
}

TEST_F(Tensors, TakeAnotherShapeOfTheSameCount) {
  Tensor x = counting({2, 6});
  x = std::move(x).reshaped({3, 4});
  EXPECT_EQ(x.shape(), (Shape{3, 4}));
  EXPECT_TRUE(error_says([&] { x.view().reshaped({5}); }, {"(3, 4)", "(5)"}));
}

TEST_F(Tensors, RowsAreSlicesWithoutCopy) {
  const Tensor x = counting({4, 2, 3});
  const View middle = x.rows(1, 3);
  EXPECT_EQ(middle.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(to_doubles(middle.rows(1, 2)), (Values{12, 13, 14, 15, 16, 17}));
  middle.data<float>()[0] = -1;
  EXPECT_EQ(to_doubles(x)[6], -1);
  EXPECT_EQ(x.rows(4, 4).count(), 0);
  EXPECT_EQ(to_doubles(x.view().flat(22, 2)), (Values{22, 23}));
}

TEST_F(Tensors, RowsOutsideAreRefused) {
  const Tensor x = counting({4, 2});
  EXPECT_TRUE(error_says([&] { x.rows(2, 5); }, {"[2, 5)", "(4, 2)"}));
  EXPECT_TRUE(error_says([&] { x.rows(-1, 2); }, {"[-1, 2)", "(4, 2)"}));
  EXPECT_TRUE(error_says([&] { x.rows(3, 2); }, {"[3, 2)", "(4, 2)"}));
  EXPECT_TRUE(error_says([&] { x.view().flat(6, 3); }, {"[6, 9)", "(8)"}));
}

TEST_F(Tensors, AreReadAsWhatTheyAre) {
  const Tensor x = counting({2}, DType::F32);
  EXPECT_TRUE(error_says([&] { x.data<double>(); }, {"F32", "read as F64"}));
  EXPECT_TRUE(error_says([&] { x.values<std::int32_t>(); }, {"F32", "read as I32"}));
  EXPECT_EQ(x.values<float>().size(), 2u);
}

TEST_F(Tensors, OfNothingAreTensorsToo) {
  const Tensor x({0, 5}, DType::F32, device_);
  EXPECT_TRUE(x);
  EXPECT_EQ(x.count(), 0);
  EXPECT_EQ(x.rows(0, 0).count(), 0);
  EXPECT_EQ(x.clone().shape(), (Shape{0, 5}));
}

}  // namespace
}  // namespace aisc
