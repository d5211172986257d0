// The convolution against loops that say what it is, against central differences, and part by part.
#include "06_tensor_parallel/more/convolution.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/model/emulated_device.h"
#include "tests/support/compare.h"
#include "tests/support/drawn.h"
#include "tests/support/gradient_check.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/some_gpu.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using reference::Array;
using Index = std::int64_t;

struct Case {
  Index N = 1, C = 1, H = 1, W = 1, F = 1, A = 1, B = 1;
  ConvolutionOptions options{};

  Index I() const {
    return convolved_size(H, A, options.row_stride, options.padding.top, options.padding.bottom);
  }
  Index J() const {
    return convolved_size(W, B, options.column_stride, options.padding.left, options.padding.right);
  }
  Shape x() const { return {N, C, H, W}; }
  Shape y() const { return {N, F, I(), J()}; }
  Shape filters() const { return {F, C, A, B}; }
  std::string text() const {
    const Padding& p = options.padding;
    return fmt::format("x {}, filters {}, strides {} {}, padding {} {} {} {}", x().to_string(),
                       filters().to_string(), options.row_stride, options.column_stride, p.top,
                       p.bottom, p.left, p.right);
  }
  // Calls f for each product of the three sums, whichever of the three it is added to.
  void each_term(const std::function<void(Index n, Index c, Index h, Index w, Index f, Index a,
                                          Index b, Index i, Index j)>& term) const {
    for (Index n = 0; n < N; ++n)
      for (Index f = 0; f < F; ++f)
        for (Index i = 0; i < I(); ++i)
          for (Index j = 0; j < J(); ++j)
            for (Index c = 0; c < C; ++c)
              for (Index a = 0; a < A; ++a)
                for (Index b = 0; b < B; ++b) {
                  const Index h = i * options.row_stride - options.padding.top + a;
                  const Index w = j * options.column_stride - options.padding.left + b;
                  if (h >= 0 && h < H && w >= 0 && w < W) term(n, c, h, w, f, a, b, i, j);
                }
  }
};

struct Tensors {
  Tensors(const Case& c, DType dtype, Device& device)
      : x(random_tensor(c.x(), dtype, device, "x")),
        dy(random_tensor(c.y(), dtype, device, "dy")),
        filters(random_tensor(c.filters(), dtype, device, "filters")),
        y(c.y(), dtype, device),
        dx(c.x(), dtype, device),
        dfilters(c.filters(), dtype, device) {
    convolution(y, x, filters, c.options);
    convolution_input_gradient(dx, dy, filters, c.options);
    convolution_filter_gradient(dfilters, dy, x, c.options);
  }
  Tensor x, dy, filters, y, dx, dfilters;
};

void expect_as_loops(const Case& size, DType dtype) {
  CpuDevice device({.poison = true});
  const Tensors found(size, dtype, device);
  const Array x = to_array(found.x), dy = to_array(found.dy), filters = to_array(found.filters);
  Array y(size.y()), dx(size.x()), dfilters(size.filters());
  size.each_term(
      [&](Index n, Index c, Index h, Index w, Index f, Index a, Index b, Index i, Index j) {
        y(n, f, i, j) += x(n, c, h, w) * filters(f, c, a, b);
        dx(n, c, h, w) += dy(n, f, i, j) * filters(f, c, a, b);
        dfilters(f, c, a, b) += dy(n, f, i, j) * x(n, c, h, w);
      });
  const std::string where = fmt::format("{}, {}: ", name_of(dtype), size.text());
  const Tolerance tolerance = tolerance_of(dtype);
  EXPECT_TRUE(all_close(found.y, y.values, tolerance)) << where << "y";
  EXPECT_TRUE(all_close(found.dx, dx.values, tolerance)) << where << "dx";
  EXPECT_TRUE(all_close(found.dfilters, dfilters.values, tolerance)) << where << "dfilters";
}

// Sums of a pixel and its neighbours: 1 + 2 + 5 + 6 in the corner, 9 of them in the middle.
TEST(ConvolutionGiven, SumsNeighboursByHand) {
  CpuDevice device({.poison = true});
  const Tensor x = from_doubles(counted(16), {1, 1, 4, 4}, DType::F64, device);
  const Tensor ones = from_doubles(std::vector<double>(9, 1), {1, 1, 3, 3}, DType::F64, device);
  const Tensor y({1, 1, 4, 4}, DType::F64, device);
  convolution(y, x, ones, {.padding = {1, 1, 1, 1}});
  EXPECT_TRUE(numbers_are("y of 4 x 4, all taps 1", y,
                          {14, 24, 30, 22, 33, 54, 63, 45, 57, 90, 99, 69, 46, 72, 78, 54}));
}

// y = (1*2 + 2*3 + 4*5 + 5*7, 2*2 + 3*3 + 5*5 + 6*7): the filter is not turned around.
TEST(ConvolutionGiven, AndItsGradientsByHand) {
  CpuDevice device({.poison = true});
  const Tensor x = from_doubles({1, 2, 3, 4, 5, 6}, {1, 1, 2, 3}, DType::F64, device);
  const Tensor w = from_doubles({2, 3, 5, 7}, {1, 1, 2, 2}, DType::F64, device);
  const Tensor dy = from_doubles({1, 10}, {1, 1, 1, 2}, DType::F64, device);
  const Tensor y(dy.shape(), DType::F64, device), dx(x.shape(), DType::F64, device);
  const Tensor dw(w.shape(), DType::F64, device);
  convolution(y, x, w);
  EXPECT_TRUE(numbers_are("y", y, {63, 80}));
  convolution_input_gradient(dx, dy, w);
  EXPECT_TRUE(numbers_are("dx", dx, {2, 3 + 20, 30, 5, 7 + 50, 70}));
  convolution_filter_gradient(dw, dy, x);
  EXPECT_TRUE(numbers_are("dw", dw, {1 + 20, 2 + 30, 4 + 50, 5 + 60}));
  convolution_filter_gradient(dw, dy, x, {}, ops::Into::Accumulate);
  EXPECT_TRUE(numbers_are("dw, added to itself", dw, {42, 64, 108, 130}));
}

TEST(ConvolutionGiven, IsWhatLoopsCompute) {
  for (const DType dtype : {DType::F64, DType::F32})
    for (const Index stride : {1, 2, 3})
      for (const Index A : {1, 2, 3, 5})
        for (const Index B : {1, 3, 4})
          for (const Index padding : {0, 1, 2})
            expect_as_loops({.N = 2,
                             .C = 3,
                             .H = 7,
                             .W = 9,
                             .F = 2,
                             .A = A,
                             .B = B,
                             .options = {stride, 4 - stride, {padding, padding, padding, padding}}},
                            dtype);
}

// Filters as large as x, padding without x, and rows that nobody reads; and the sums in
// spatial_split.h: K x K filters with zeros of half their width.
TEST(ConvolutionGiven, IsWhatLoopsComputeAtTheEdges) {
  expect_as_loops({.H = 3, .W = 4, .A = 3, .B = 4}, DType::F64);
  expect_as_loops({.H = 1, .W = 1, .F = 5, .A = 2, .B = 3, .options = {1, 1, {4, 3, 5, 2}}},
                  DType::F64);
  expect_as_loops({.C = 2, .H = 9, .W = 40, .options = {4, 7, {0, 0, 0, 0}}}, DType::F64);
  for (const Index K : {1, 3, 5}) {
    const Index O = K / 2;
    expect_as_loops({2, 3, 6, 5, 4, K, K, {.padding = {O, O, O, O}}}, DType::F64);
  }
  expect_as_loops({.N = 3, .H = 20, .W = 200, .F = 3, .A = 3, .B = 3}, DType::F32);
}

// Each side of its own, some of them cut off.
TEST(ConvolutionGiven, IsWhatLoopsComputeWithDrawnSizes) {
  for (int i = 0; i < 60; ++i) {
    const auto draw = [&](const char* what, Index low, Index high) {
      return drawn(fmt::format("{} of convolution {}", what, i), low, high);
    };
    const Case size{.N = draw("N", 1, 3),
                    .C = draw("C", 1, 4),
                    .H = draw("H", 5, 14),
                    .W = draw("W", 5, 37),
                    .F = draw("F", 1, 4),
                    .A = draw("A", 1, 4),
                    .B = draw("B", 1, 4),
                    .options = {draw("row stride", 1, 4),
                                draw("column stride", 1, 4),
                                {draw("top", -2, 3), draw("bottom", -1, 3), draw("left", -1, 3),
                                 draw("right", -2, 3)}}};
    expect_as_loops(size, i % 2 == 0 ? DType::F64 : DType::F32);
  }
}

TEST(ConvolutionGiven, GradientsAreSlopes) {
  const Case size{
      .N = 2, .C = 2, .H = 5, .W = 7, .F = 3, .A = 3, .B = 2, .options = {2, 1, {1, 0, 2, 1}}};
  CpuDevice device;
  const Tensors t(size, DType::F64, device);
  const auto loss = [&] {
    convolution(t.y, t.x, t.filters, size.options);
    return dot(t.y, t.dy);
  };
  EXPECT_TRUE(check_gradient(loss, t.x, t.dx)) << "dx of " << size.text();
  EXPECT_TRUE(check_gradient(loss, t.filters, t.dfilters)) << "dfilters of " << size.text();
}

// Rows 3 .. 5 of y read rows 2 .. 6 of x: computed from these alone they have the same bits.
TEST(ConvolutionGiven, OfAPartHasTheBitsOfTheWhole) {
  CpuDevice device({.poison = true});
  for (const DType dtype : {DType::F32, DType::F64}) {
    const Case all{.C = 3, .H = 9, .W = 67, .A = 3, .B = 3, .options = {1, 1, {1, 1, 1, 1}}};
    const Tensors whole(all, dtype, device);
    const Tensor x({1, 3, 5, 67}, dtype, device), y({1, 1, 3, 67}, dtype, device);
    for (Index c = 0; c < 3; ++c)
      device.copy(x.view().flat(c * 5 * 67, 5 * 67), whole.x.view().flat((c * 9 + 2) * 67, 5 * 67));
    convolution(y, x, whole.filters, {.padding = {.left = 1, .right = 1}});
    EXPECT_TRUE(same_bits(y.view().flat(0, 3 * 67), whole.y.view().flat(3 * 67, 3 * 67)));
  }
}

TEST(ConvolutionGiven, OfNoRowsGivesZeros) {
  CpuDevice device({.poison = true});
  const Tensor w = from_doubles({2}, {1, 1, 1, 1}, DType::F64, device);
  const Tensor x({1, 1, 2, 3}, DType::F64, device), dy({1, 1, 0, 3}, DType::F64, device);
  convolution_input_gradient(x, dy, w, {.padding = {.bottom = -2}});
  EXPECT_EQ(to_doubles(x), std::vector<double>(6, 0.0)) << "dx of a dy without rows";
  const Tensor dw({1, 1, 1, 1}, DType::F64, device);
  convolution_filter_gradient(dw, dy, x, {.padding = {.bottom = -2}});
  EXPECT_EQ(to_doubles(dw), std::vector<double>{0.0}) << "dfilters of a dy without rows";
}

TEST(ConvolutionGiven, CountsItsOutputs) {
  EXPECT_EQ(convolved_size(7, 3, 1, 0, 0), 5);
  EXPECT_EQ(convolved_size(7, 3, 2, 1, 1), 4);
  EXPECT_EQ(convolved_size(8, 3, 3, 1, 0), 3) << "the last row is not read";
  EXPECT_EQ(convolved_size(2, 5, 1, 1, 1), 0);
  EXPECT_EQ(convolved_size(2, 1, 3, 0, -2), 0);
}

// 2 * 2 * 3 * 4 * 5 outputs of 3 * 2 * 2 products each; once x, filters and y in 4 bytes.
TEST(ConvolutionGiven, ChargesItsProductsAndItsTensors) {
  std::vector<OpCost> costs;
  CpuDevice device;
  device.listen([&](const OpCost& cost) { costs.push_back(cost); });
  const Case size{.N = 2, .C = 3, .H = 5, .W = 6, .F = 3, .A = 2, .B = 2};
  const Tensor x({2, 3, 5, 6}, DType::F32, device), y({2, 3, 4, 5}, DType::F32, device);
  const Tensor w({3, 3, 2, 2}, DType::F32, device);
  for (const Tensor* t : {&x, &y, &w}) device.zero(*t);
  costs.clear();
  convolution(y, x, w);
  convolution_input_gradient(x, y, w);
  convolution_filter_gradient(w, y, x);
  convolution_filter_gradient(w, y, x, {}, ops::Into::Accumulate);
  ASSERT_EQ(costs.size(), 4u);
  const char* const names[] = {"convolution", "convolution_input_gradient",
                               "convolution_filter_gradient", "convolution_filter_gradient"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_STREQ(costs[i].operation, names[i]);
    EXPECT_EQ(costs[i].flops, 2.0 * (2 * 3 * 4 * 5) * (3 * 2 * 2)) << names[i];
    EXPECT_EQ(costs[i].bytes, 4.0 * (180 + 120 + 36 + (i == 3 ? 36 : 0))) << names[i];
    EXPECT_TRUE(costs[i].product);
  }
  EXPECT_EQ(size.y(), y.shape());
}

TEST(ConvolutionGiven, WithoutNumbersTakesItsTime) {
  Machine machine;
  machine.flops = {{DType::F32, 64}};
  machine.vector_flops = machine.memory_bandwidth = 1e12;
  Clock clock = Clock::virtual_time();
  EmulatedDevice device(clock, machine, {.meta = true});
  const Tensor x({1, 1, 4, 4}, DType::F32, device), w({1, 1, 1, 2}, DType::F32, device);
  const Tensor y({1, 1, 4, 3}, DType::F32, device);
  convolution(y, x, w);
  EXPECT_EQ(clock.now(), 12 * 2 * 2 / 64.0) << "2 products and 2 additions for 12 outputs";
}

TEST(ConvolutionGiven, SaysThatItIsNotAvailableOnAGpu) {
  SomeGpu gpu;
  const Tensor x({1, 1, 3, 3}, DType::F32, gpu), w({1, 1, 1, 1}, DType::F32, gpu);
  const std::string there = " is on cuda:0, where it is not available, expected the CPU";
  EXPECT_EQ(message_of([&] { convolution(x, x, w); }), "convolution: x" + there);
  EXPECT_EQ(message_of([&] { convolution_input_gradient(x, x, w); }),
            "convolution_input_gradient: dx" + there);
  EXPECT_EQ(message_of([&] { convolution_filter_gradient(w, x, x); }),
            "convolution_filter_gradient: x" + there);
}

TEST(ConvolutionGiven, SaysWhatDoesNotFit) {
  CpuDevice device;
  const auto f32 = [&](const Shape& shape) { return Tensor(shape, DType::F32, device); };
  const Tensor x = f32({1, 2, 5, 6}), w = f32({3, 2, 2, 2}), y = f32({1, 3, 4, 5});
  const auto with = [&](const ConvolutionOptions& options) {
    return message_of([&] { convolution(y, x, w, options); });
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({.row_stride = 0}), "convolution: a stride is 0, expected at least 1");
  EXPECT_EQ(with({.column_stride = -2}), "convolution: a stride is -2, expected at least 1");
  EXPECT_EQ(with({.padding = {.top = 1}}),
            "convolution: y is (1, 3, 4, 5) F32, expected (1, 3, 5, 5) F32");
  const auto says = [&](const Tensor& in, const Tensor& filters) {
    return message_of([&] { convolution(y, in, filters); });
  };
  EXPECT_EQ(says(x, f32({3, 4, 2, 2})),
            "convolution: filters is (3, 4, 2, 2) F32, expected (3, 2, 2, 2) F32");
  EXPECT_EQ(says(x, f32({3, 2, 0, 2})), "convolution: the filter's size is 0, expected at least 1");
  EXPECT_EQ(says(f32({2, 5, 6}), w), "convolution: x is (2, 5, 6) F32, expected 4 dimensions");
  EXPECT_EQ(says(Tensor({1, 2, 5, 6}, DType::BF16, device), w),
            "convolution: x is BF16, expected F32 or F64");
  const Tensor longer({1, 2, 5, 6}, DType::F64, device);
  EXPECT_EQ(message_of([&] { convolution_filter_gradient(w, y, longer); }),
            "convolution_filter_gradient: dfilters is (3, 2, 2, 2) F32, expected (3, 2, 2, 2) F64");
}

}  // namespace
}  // namespace aisc
