// The gradient check must reject gradients that are nearly right.
#include "tests/support/gradient_check.h"

#include <cmath>

#include "tests/support/tensors.h"

namespace aisc {
namespace {

// loss = sum of x_i^3, whose gradient is 3 x_i^2.
class CheckGradient : public ::testing::Test {
 protected:
  CheckGradient() {
    for (const double value : to_doubles(x_)) gradient_.push_back(3 * value * value);
  }
  ::testing::AssertionResult check(const GradientCheck& options = {}) {
    const auto loss = [&] {
      double sum = 0;
      for (const double value : to_doubles(x_)) sum += value * value * value;
      return sum;
    };
    return check_gradient(loss, x_, from_doubles(gradient_, {4, 5}, DType::F64, device_), options);
  }

  CpuDevice device_;
  const Tensor x_ = random_tensor({4, 5}, DType::F64, device_, "x");
  std::vector<double> gradient_;
};

TEST_F(CheckGradient, AcceptsTheRightOneAndRestoresX) {
  const Tensor before = x_.clone();
  EXPECT_TRUE(check());
  EXPECT_TRUE(check({.samples = 5}));
  EXPECT_TRUE(same_bits(x_, before));
}

TEST_F(CheckGradient, NamesTheElementThatIsWrong) {
  gradient_[13] *= 1.001;
  const auto result = check();
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("1 of 20 gradients are off; the worst at (2, 3)"),
            std::string::npos)
      << result.message();
}

TEST_F(CheckGradient, RejectsATermThatWasForgotten) {
  gradient_[7] += 1e-5;
  EXPECT_FALSE(check());
}

TEST_F(CheckGradient, RejectsNaN) {
  gradient_[0] = NAN;
  EXPECT_FALSE(check());
}

TEST_F(CheckGradient, RejectsZeros) {
  gradient_.assign(20, 0.0);
  EXPECT_FALSE(check());
}

TEST_F(CheckGradient, RejectsAnotherCount) {
  const auto result =
      check_gradient([] { return 0.0; }, x_, random_tensor({4, 4}, DType::F64, device_, "x"));
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("shape (4, 4) for a tensor of shape (4, 5)"),
            std::string::npos);
}

}  // namespace
}  // namespace aisc
