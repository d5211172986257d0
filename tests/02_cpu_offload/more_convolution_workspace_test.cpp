// A convolution as a product, whole and in parts, against loops; its workspace; the choice.
#include "02_cpu_offload/more/convolution_workspace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr double kSumsRound = 1e-12;  // up to 45 products of normal numbers in F64

struct WorkspaceCase {
  std::int64_t N, C, H, W, F, A, B;
  ConvolutionOptions options;

  std::int64_t I() const {
    return convolved_size(H, A, options.row_stride, options.padding.top, options.padding.bottom);
  }
  std::int64_t J() const {
    return convolved_size(W, B, options.column_stride, options.padding.left, options.padding.right);
  }
};

const std::vector<WorkspaceCase> kConvolutions{
    {2, 3, 7, 5, 4, 3, 3, {1, 1, {1, 1, 1, 1}}},  // as large as its input
    {1, 2, 9, 7, 3, 3, 2, {2, 2, {1, 0, 0, 1}}},  // strides and padding that is not even
    {3, 5, 4, 3, 2, 1, 1, {}},                    // 1 x 1
    {1, 1, 6, 11, 1, 5, 4, {1, 3, {2, 2, 3, 3}}},
    {2, 2, 5, 5, 3, 2, 3, {2, 1, {-1, 0, 0, 2}}},  // a row that is not looked at
    {1, 1, 1, 2, 1, 3, 5, {1, 1, {2, 2, 4, 4}}},   // taps that read nothing
};

std::vector<double> by_loops(const WorkspaceCase& c, const std::vector<double>& x,
                             const std::vector<double>& filters) {
  std::vector<double> y;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t n = 0; n < c.N; ++n)
    for (std::int64_t f = 0; f < c.F; ++f)
      for (std::int64_t i = 0; i < c.I(); ++i)
        for (std::int64_t j = 0; j < c.J(); ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < c.C * c.A * c.B; ++k) {
            const std::int64_t channel = k / c.A / c.B, a = k / c.B % c.A, b = k % c.B;
            const std::int64_t h = i * c.options.row_stride - c.options.padding.top + a;
            const std::int64_t w = j * c.options.column_stride - c.options.padding.left + b;
            if (h >= 0 && h < c.H && w >= 0 && w < c.W)
              sum += x[at(((n * c.C + channel) * c.H + h) * c.W + w)] *
                     filters[at(f * c.C * c.A * c.B + k)];
          }
          y.push_back(sum);
        }
  return y;
}

// Every number of rows that a plan can have, 0 included: numbers and bytes.
TEST(ConvolutionWorkspace, EveryPlanComputesTheSame) {
  for (std::size_t which = 0; which < kConvolutions.size(); ++which) {
    const WorkspaceCase& c = kConvolutions[which];
    CpuDevice device({.poison = true});
    const Tensor x = random_tensor({c.N, c.C, c.H, c.W}, DType::F64, device, "x");
    const Tensor filters = random_tensor({c.F, c.C, c.A, c.B}, DType::F64, device, "filters");
    const std::vector<double> expected = by_loops(c, to_doubles(x), to_doubles(filters));
    const std::int64_t taps = c.C * c.A * c.B;
    for (std::int64_t rows = 0; rows <= c.I(); ++rows) {
      const std::int64_t bytes =
          8 * (rows == c.I() ? taps * rows * c.J() : (taps + c.F) * rows * c.J());
      const Tensor y({c.N, c.F, c.I(), c.J()}, DType::F64, device);
      device.reset_peaks();
      convolution_by_plan(y, x, filters, {rows, bytes}, c.options);
      const std::vector<double> found = to_doubles(y);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], kSumsRound)
            << "case " << which << ", " << rows << " rows at a time, element " << i;
      const Usage workspace = device.ledger()[Purpose::Workspace];
      EXPECT_EQ(workspace.peak_bytes, bytes) << "case " << which << ", " << rows << " rows";
      EXPECT_EQ(workspace.live_bytes, 0);
    }
  }
}

// 2 channels of 4 x 4, 3 filters of 3 x 3, y 3 x 2 x 2: 18 taps. F32: 288 bytes for both rows, and
// (18 + 3) * 2 * 4 = 168 for one.
TEST(ConvolutionWorkspace, ThePlanIsTheLargestThatFits) {
  CpuDevice device;
  const Tensor y({1, 3, 2, 2}, DType::F32, device), filters({3, 2, 3, 3}, DType::F32, device);
  const auto plan = [&](std::int64_t free_bytes) {
    const ConvolutionPlan p = plan_convolution(y, filters, free_bytes);
    return std::vector<std::int64_t>{p.rows, p.workspace_bytes};
  };
  using Plan = std::vector<std::int64_t>;
  EXPECT_EQ(plan(1000), (Plan{2, 288}));
  EXPECT_EQ(plan(288), (Plan{2, 288}));
  EXPECT_EQ(plan(287), (Plan{1, 168}));
  EXPECT_EQ(plan(168), (Plan{1, 168}));
  EXPECT_EQ(plan(167), (Plan{0, 0}));
  EXPECT_EQ(plan(0), (Plan{0, 0}));
}

// With 20 filters a part of 2 rows of 3 takes more than all 3 rows.
TEST(ConvolutionWorkspace, APartMayTakeMoreThanTheWhole) {
  CpuDevice device;
  const Tensor y({1, 20, 3, 1}, DType::F64, device), filters({20, 1, 2, 2}, DType::F64, device);
  EXPECT_EQ(plan_convolution(y, filters, 8 * 4 * 3).rows, 3);
  EXPECT_EQ(plan_convolution(y, filters, 8 * 4 * 3 - 1).rows, 0);
}

// What a limited device has room for, it computes: the plan's bytes are all that there is.
TEST(ConvolutionWorkspace, FitsIntoWhatIsFree) {
  const WorkspaceCase& c = kConvolutions[0];
  constexpr std::int64_t kFree = 8 * (27 + 4) * 5 * 3;  // of 3 rows
  const std::int64_t tensors = 8 * (2 * 3 * 7 * 5 + 4 * 3 * 3 * 3 + 2 * 4 * 7 * 5);
  CpuDevice device({.capacity_bytes = tensors + kFree});
  const Tensor x = random_tensor({c.N, c.C, c.H, c.W}, DType::F64, device, "x");
  const Tensor filters = random_tensor({c.F, c.C, c.A, c.B}, DType::F64, device, "filters");
  const Tensor y({c.N, c.F, c.I(), c.J()}, DType::F64, device);
  const ConvolutionPlan plan = plan_convolution(y, filters, kFree);
  EXPECT_EQ(plan.rows, 3);
  convolution_by_plan(y, x, filters, plan, c.options);
  EXPECT_EQ(device.ledger().total.peak_bytes, tensors + kFree);
}

TEST(ConvolutionWorkspace, SaysWhatDoesNotFitTogether) {
  CpuDevice device;
  const Tensor x = Tensor::zeros({1, 2, 4, 4}, DType::F32, device);
  const Tensor y({1, 3, 2, 2}, DType::F32, device), filters({3, 2, 3, 3}, DType::F32, device);
  const auto says = [&](const ConvolutionPlan& plan, const ConvolutionOptions& options = {}) {
    return message_of([&] { convolution_by_plan(y, x, filters, plan, options); });
  };
  EXPECT_EQ(says({2, 280}), "convolution_by_plan: 2 rows of 2 in 280 bytes, expected 288");
  EXPECT_EQ(says({3, 504}), "convolution_by_plan: 3 rows of 2, expected 0 to 2");
  EXPECT_EQ(says({-1, 0}), "convolution_by_plan: -1 rows of 2, expected 0 to 2");
  EXPECT_EQ(says({2, 288}, {.row_stride = 2}),
            "convolution_by_plan: y is (1, 3, 2, 2) F32, expected (1, 3, 1, 2) F32");
  EXPECT_EQ(says({2, 288}, {.column_stride = 0}),
            "convolution_by_plan: a stride is 0, expected at least 1");
  EXPECT_EQ(message_of([&] { plan_convolution(y, filters, -1); }),
            "plan_convolution: free_bytes is -1, expected at least 0");
}

}  // namespace
}  // namespace aisc
