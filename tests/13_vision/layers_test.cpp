// Filters, pooling, and what a residual block makes of them: by hand, against 06's loops, and
// against central differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "13_vision/convolution_layer.h"
#include "13_vision/image_columns.h"
#include "13_vision/pooling.h"
#include "13_vision/residual_block.h"
#include "tests/13_vision/layer_check.h"
#include "tests/nn/layer_check.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

Tensor image_of(const std::vector<double>& values, const Shape& shape, Device& device) {
  return from_doubles(values, shape, DType::F64, device);
}

// Columns of the 2 x 2 patches of an image of 2 rows and 3 columns: a row for each tap.
TEST(ImageColumns, OfTwoRowsByHand) {
  CpuDevice device({.poison = true});
  const Tensor x = image_of(counted(6), {1, 1, 2, 3}, device);
  const PatchSizes sizes = patch_sizes("test", x, {1, 1, 2, 2}, {});
  const Tensor patches({4, 2}, DType::F64, device);
  image_to_columns(patches, x, sizes);
  EXPECT_TRUE(numbers_are("patches", patches, {1, 2, 2, 3, 4, 5, 5, 6}));
  const Tensor back(x.shape(), DType::F64, device);
  columns_to_image(back, patches, sizes);
  EXPECT_TRUE(numbers_are("each pixel times its patches", back, {1, 2 * 2, 3, 4, 2 * 5, 6}));
}

TEST(ImageColumns, SaysWhatDoesNotFit) {
  CpuDevice device;
  const Tensor x({2, 3, 5, 7}, DType::F32, device);
  const auto sizes = [&](ConstView images, const Shape& filters, const ConvolutionOptions& o = {}) {
    return message_of([&] { patch_sizes("filters", images, filters, o); });
  };
  EXPECT_EQ(sizes(x.view().reshaped({6, 35}), {1, 3, 3, 3}),
            "filters: x is (6, 35), expected images (N, C, H, W)");
  EXPECT_EQ(sizes({}, {1, 3, 3, 3}), "filters: x is empty, expected images (N, C, H, W)");
  EXPECT_EQ(sizes(Tensor({2, 3, 5, 7}, DType::BF16, device), {1, 3, 3, 3}),
            "filters: x is BF16, expected F32 or F64");
  EXPECT_EQ(sizes(x, {1, 4, 3, 3}),
            "filters: filters are (1, 4, 3, 3), expected (F, 3, A, B) for x of (2, 3, 5, 7)");
  EXPECT_EQ(sizes(x, {1, 3, 3, 3}, {.column_stride = 0}),
            "filters: strides are 1 and 0, expected 1 or more");
  EXPECT_EQ(sizes(x, {1, 3, 8, 3}, {.padding = {1, 1, 0, 0}}),
            "filters: a filter of 8 does not fit into 5 elements, 1 before and 1 behind");
  const Tensor patches({27, 3}, DType::F32, device);
  EXPECT_EQ(message_of([&] {
              image_to_columns(patches, x, patch_sizes("", x, {1, 3, 3, 3}, {}));
            }),
            "image_to_columns: patches are (27, 3) F32, expected (27, 30) F32");
}

// All of forward and backward, in images, channels, sizes and strides that are drawn.
TEST(ConvolutionLayer, IsTheConvolutionOfModule06) {
  for (const DType dtype : {DType::F64, DType::F32})
    for (const std::int64_t size : {1, 3, 5})
      for (const std::int64_t stride : {1, 2, 3}) {
        TestWorld world;
        const FilterSizes sizes{.in = drawn("channels", 1, 4),
                                .out = drawn("filters", 1, 5),
                                .size = size,
                                .stride = stride,
                                .bias = FilterSizes::Bias::No};
        ConvolutionLayer layer(world.rank, "conv", sizes);
        ParameterStore store(world.device, {{"conv", layer.parameters()}},
                             {.value_dtype = dtype, .grad_dtype = dtype});
        store.initialize(test_seed());
        const Shape shape{drawn("images", 1, 3), sizes.in, drawn("rows", 3, 9),
                          drawn("columns", 3, 9)};
        const Tensor x = random_tensor(shape, dtype, world.device, "x");
        Saved saved;
        const Tensor y = layer.forward(x.share(), saved, {});
        const Tensor dy = random_tensor(y.shape(), dtype, world.device, "dy");
        const Tensor dx = layer.backward(dy.share(), saved, {});

        const Parameter& weight = *layer.parameters()[0];
        const Tensor whole_y(y.shape(), dtype, world.device), whole_dx(shape, dtype, world.device);
        const Tensor dweight(weight.shape, dtype, world.device);
        convolution(whole_y, x, weight.value(), sizes.options());
        convolution_input_gradient(whole_dx, dy, weight.value(), sizes.options());
        convolution_filter_gradient(dweight, dy, x, sizes.options());
        EXPECT_TRUE(all_close(y, to_doubles(whole_y), tolerance_of(dtype)));
        EXPECT_TRUE(all_close(dx, to_doubles(whole_dx), tolerance_of(dtype)));
        EXPECT_TRUE(all_close(weight.grad(), to_doubles(dweight), tolerance_of(dtype)));
      }
}

TEST(ConvolutionLayer, GradientsAreSlopes) {
  TestWorld world;
  for (const std::int64_t stride : {1, 2}) {
    ConvolutionLayer layer(world.rank, "conv", {.in = 2, .out = 3, .size = 3, .stride = stride});
    check_layer_gradients(world, layer, {2, 2, 5, 4});
  }
}

TEST(ConvolutionLayer, OfNoImagesHasGradientsOfZero) {
  TestWorld world;
  ConvolutionLayer layer(world.rank, "conv", {.in = 2, .out = 3});
  const DrawnLayer drawn_layer(world.device, layer);
  Saved saved;
  const Tensor y = layer.forward(Tensor({0, 2, 4, 4}, DType::F64, world.device), saved, {});
  EXPECT_EQ(y.shape(), (Shape{0, 3, 4, 4}));
  EXPECT_EQ(layer.backward(y.share(), saved, {}).shape(), (Shape{0, 2, 4, 4}));
  for (const Parameter* p : drawn_layer.store.parameters())
    for (const double gradient : to_doubles(p->grad())) EXPECT_EQ(gradient, 0) << p->name;
}

// The largest of each window, and its gradient where that is; row and column 3 are left over. The
// first of two equal ones has it.
TEST(MaxPool, ByHand) {
  TestWorld world;
  MaxPool layer(world.rank, "pool", 2);
  const Tensor x = image_of({1, 5, 2, 7, 9,  //
                             3, 4, 7, 0, 9,  //
                             9, 9, 9, 9, 9},
                            {1, 1, 3, 5}, world.device);
  Saved saved;
  EXPECT_TRUE(numbers_are("y", layer.forward(x.share(), saved, {}), {5, 7}));
  const Tensor dy = image_of({10, 20}, {1, 1, 1, 2}, world.device);
  EXPECT_TRUE(numbers_are("dx", layer.backward(dy.share(), saved, {}),
                          {0, 10, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  Saved nothing = Saved::nothing();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor broken = image_of({1, nan, 2, 3}, {1, 1, 2, 2}, world.device);
  EXPECT_TRUE(has_nan(layer.forward(broken.share(), nothing, {})));
  EXPECT_EQ(message_of([&] {
              layer.forward(Tensor({1, 1, 1, 4}, DType::F64, world.device), nothing, {});
            }),
            "max pool: x is (1, 1, 1, 4), expected 2 or more rows and columns");
}

TEST(GlobalAveragePool, ByHand) {
  TestWorld world;
  GlobalAveragePool layer(world.rank, "mean");
  const Tensor x = image_of({1, 2, 3, 6, 10, 20, 30, 60}, {1, 2, 2, 2}, world.device);
  Saved saved;
  EXPECT_TRUE(numbers_are("y", layer.forward(x.share(), saved, {}), {3, 30}));
  const Tensor dy = image_of({4, 8}, {1, 2}, world.device);
  const Tensor dx = layer.backward(dy.share(), saved, {});
  EXPECT_EQ(dx.shape(), x.shape());
  EXPECT_TRUE(numbers_are("dx", dx, {1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST(LayersWithoutWeights, GradientsAreSlopes) {
  TestWorld world;
  Relu relu(world.rank, "relu");
  MaxPool max(world.rank, "max", 3);
  GlobalAveragePool mean(world.rank, "mean");
  Flatten rows(world.rank, "rows");
  for (Layer* layer : {static_cast<Layer*>(&relu), static_cast<Layer*>(&max),
                       static_cast<Layer*>(&mean), static_cast<Layer*>(&rows)}) {
    Saved saved;
    const Tensor x = random_tensor({2, 3, 7, 5}, DType::F64, world.device, "x"), before = x.clone();
    const Tensor y = layer->forward(x.share(), saved, {});
    const Tensor dy = random_tensor(y.shape(), DType::F64, world.device, "dy");
    const Tensor dx = layer->backward(dy.share(), saved, {});
    EXPECT_EQ(saved.size(), 0u);
    EXPECT_TRUE(same_bits(x, before));
    const auto loss = [&] {
      Saved nothing = Saved::nothing();
      return dot(layer->forward(x.clone(), nothing, {}), dy);
    };
    EXPECT_TRUE(check_gradient(loss, x, dx)) << layer->name();
  }
}

TEST(Flatten, KeepsTheElementsInTheirOrder) {
  TestWorld world;
  Flatten layer(world.rank, "rows");
  Saved saved;
  const Tensor y = layer.forward(image_of(counted(8), {2, 2, 2, 1}, world.device), saved, {});
  EXPECT_EQ(y.shape(), (Shape{2, 4}));
  EXPECT_TRUE(numbers_are("y", y, counted(8)));
  EXPECT_EQ(layer.backward(y.share(), saved, {}).shape(), (Shape{2, 2, 2, 1}));
}

TEST(ResidualBlock, GradientsAreSlopesForEachNormAndShortcut) {
  for (const ImageNorm norm :
       {ImageNorm::None, ImageNorm::Batch, ImageNorm::SyncBatch, ImageNorm::Layer})
    for (const std::int64_t stride : {1, 2}) {
      TestWorld world;
      ImageSize images{2, 5, 4};
      ResidualBlock block(world.rank, "block", images, stride == 1 ? 2 : 3, stride,
                          {norm, *world.comm});
      EXPECT_EQ(block.has_shortcut(), stride == 2);
      EXPECT_EQ(images.height, stride == 1 ? 5 : 3);
      EXPECT_EQ(images.width, stride == 1 ? 4 : 2);
      check_layer_gradients(world, block, {2, 2, 5, 4});
    }
}

// With filters of 0 the path says nothing: what is left is the shortcut, x, behind a ReLU.
TEST(ResidualBlock, WhosePathIsZeroPassesItsInputOn) {
  TestWorld world;
  ImageSize images{3, 4, 4};
  ResidualBlock block(world.rank, "block", images, 3, 1, {ImageNorm::None, *world.comm});
  ParameterStore store(world.device, {{"block", block.parameters()}},
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  ops::fill(store.values(), 0);
  const Tensor x = random_tensor({2, 3, 4, 4}, DType::F64, world.device, "x");
  std::vector<double> expected = to_doubles(x);
  for (double& value : expected) value = std::max(value, 0.0);
  Saved nothing = Saved::nothing();
  EXPECT_EQ(to_doubles(block.forward(x.share(), nothing, {})), expected);
}

}  // namespace
}  // namespace aisc
