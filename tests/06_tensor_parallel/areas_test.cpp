// Parts of images, what convolutions read of them, and what a split refuses.
#include "06_tensor_parallel/more/areas.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "06_tensor_parallel/more/spatial_split.h"
#include "common/comm/launch.h"
#include "tests/support/message_of.h"
#include "tests/support/some_gpu.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Index = std::int64_t;

void on_world(int ranks, const std::function<void(const Rank&)>& body) {
  launch({.ranks = ranks, .device = {.poison = true}, .bind = false}, body);
}

TEST(AreasGiven, AreSharesThatDifferByAtMostOne) {
  EXPECT_EQ(share_of(7, 0, 3), (Range{0, 2}));
  EXPECT_EQ(share_of(7, 1, 3), (Range{2, 4}));
  EXPECT_EQ(share_of(7, 2, 3), (Range{4, 7}));
  for (const Index size : {1, 2, 7, 100, 101})
    for (int parts = 1; parts <= 9; ++parts) {
      Index end = 0;
      for (int part = 0; part < parts; ++part) {
        const Range share = share_of(size, part, parts);
        EXPECT_EQ(share.begin, end);
        EXPECT_TRUE(share.count() == size / parts || share.count() == (size + parts - 1) / parts);
        end = share.end;
      }
      EXPECT_EQ(end, size);
    }
  EXPECT_EQ(areas_of({2, 3}, 4, 7)[4], (Area{{2, 4}, {2, 4}})) << "row 1, column 1";
}

// Size 10, filter 3, stride 2, one zero: outputs 0 .. 4 read -1 .. 1, 1 .. 3, 3 .. 5, 5 .. 7,
// 7 .. 9.
TEST(AreasGiven, SayWhatIsReadByHand) {
  const ConvolutionAxis axis{.size = 10, .filter = 3, .stride = 2, .before = 1, .outputs = 5};
  EXPECT_EQ(read_by(axis, {0, 1}), (Range{0, 2}));
  EXPECT_EQ(read_by(axis, {1, 3}), (Range{1, 6}));
  EXPECT_EQ(readers_of(axis, {0, 1}), (Range{0, 1}));
  EXPECT_EQ(readers_of(axis, {1, 2}), (Range{0, 2}));
  EXPECT_EQ(readers_of(axis, {4, 10}), (Range{2, 5}));
  const ConvolutionAxis sparse{.size = 7, .filter = 1, .stride = 3, .before = 0, .outputs = 3};
  EXPECT_EQ(readers_of(sparse, {1, 3}).count(), 0) << "rows 1 and 2 are read by none";
}

TEST(AreasGiven, AreCopied) {
  CpuDevice device;
  const Tensor x = from_doubles(counted(18), {2, 1, 3, 3}, DType::F32, device);
  const Area all{{0, 3}, {0, 3}}, right{{0, 3}, {1, 3}};
  const Tensor to = from_doubles(std::vector<double>(12, 0), {2, 1, 3, 2}, DType::F32, device);
  copy_area(to, right, x, all, {{1, 3}, {1, 2}});
  EXPECT_EQ(to_doubles(to), (std::vector<double>{0, 0, 5, 0, 8, 0, 0, 0, 14, 0, 17, 0}));
  copy_area(to, right, x, all, {{1, 1}, {0, 5}});  // nothing
  const Area outside{{1, 3}, {0, 2}};
  EXPECT_EQ(message_of([&] { copy_area(to, right, x, all, outside); }),
            "copy_area: [1, 3) x [0, 2) does not lie in both [0, 3) x [1, 3) and [0, 3) x [0, 3)");
  SomeGpu gpu;
  const Tensor there({2, 1, 3, 3}, DType::F32, gpu);
  EXPECT_EQ(message_of([&] { copy_area(there, all, x, all, all); }),
            "copy_area: from cpu to cuda:0, where it is not available, expected the CPU");
}

TEST(SpatialConvolutionGiven, SaysWhatDoesNotFit) {
  on_world(2, [](const Rank& rank) {
    const auto says = [&](const SpatialConvolution::Options& options) {
      return message_of([&] { const SpatialConvolution split(rank, rank.world, options); });
    };
    EXPECT_EQ(says({.grid = {1, 2}, .rows = 1, .columns = 2}), "");
    EXPECT_EQ(says({.grid = {3, 2}, .rows = 4, .columns = 4}),
              "spatial convolution: 2 ranks, expected a grid of them, found 3 x 2");
    EXPECT_EQ(says({.grid = {-1, -2}, .rows = 4, .columns = 4}),
              "spatial convolution: 2 ranks, expected a grid of them, found -1 x -2");
    EXPECT_EQ(says({.grid = {2, 1}, .columns = 4}),
              "spatial convolution: an image of size 0, expected 1 or more");
    EXPECT_EQ(says({.grid = {2, 1}, .rows = 4, .columns = 4, .filter_columns = 0}),
              "spatial convolution: a filter of size 0, expected 1 or more");
    EXPECT_EQ(says({.grid = {2, 1}, .rows = 4, .columns = 4, .row_stride = 0}),
              "spatial convolution: a stride of 0, expected 1 or more");
    EXPECT_EQ(says({.grid = {2, 1}, .rows = 4, .columns = 4, .row_padding = -1}),
              "spatial convolution: a padding of -1, expected 0 or more");
    EXPECT_EQ(says({.grid = {2, 1}, .rows = 4, .columns = 4, .filter_rows = 7, .row_padding = 1}),
              "spatial convolution: a filter of size 7 does not fit into 4 + 2 * 1");
    EXPECT_EQ(says({.grid = {2, 1}, .rows = 4, .columns = 4, .filter_rows = 4}),
              "spatial convolution: 2 rows of ranks for 4 of x and 1 of y, expected at most 1: a "
              "rank would have none");
    EXPECT_EQ(says({.grid = {1, 2}, .rows = 4, .columns = 1, .column_padding = 1}),
              "spatial convolution: 2 columns of ranks for 1 of x and 3 of y, expected at most 1: "
              "a rank would have none");
  });
}

TEST(SpatialConvolutionGiven, SaysWhichPartHasTheWrongShape) {
  on_world(1, [](const Rank& rank) {
    const SpatialConvolution split(rank, rank.world, same_size({}, 4, 5, 3));
    const auto f32 = [&](const Shape& shape) { return Tensor(shape, DType::F32, rank.device); };
    const Tensor x = f32({1, 2, 4, 5}), w = f32({3, 2, 3, 3}), wrong = f32({1, 2, 5, 4});
    Saved saved;
    EXPECT_EQ(message_of([&] { split.forward(wrong, w, saved); }),
              "spatial convolution, rank 0 of 1: x is (1, 2, 5, 4), expected (.., .., 4, 5)");
    EXPECT_EQ(message_of([&] { split.forward(x, wrong, saved); }),
              "spatial convolution, rank 0 of 1: filters is (1, 2, 5, 4), expected (.., .., 3, 3)");
    EXPECT_EQ(message_of([&] { split.backward(wrong, w, saved); }),
              "spatial convolution, rank 0 of 1: dy is (1, 2, 5, 4), expected (.., .., 4, 5)");
    const Area all{{0, 4}, {0, 5}};
    const std::vector<Area> one{all}, two{all, all};
    EXPECT_EQ(message_of([&] { with_halo(rank.world, x, two, one); }),
              "with_halo: 2 parts are owned and 1 needed, expected one for each of 1 ranks");
    EXPECT_EQ(message_of([&] { with_halo(rank.world, wrong, one, one); }),
              "with_halo, rank 0 of 1: own is (1, 2, 5, 4), expected (.., .., 4, 5)");
  });
}

}  // namespace
}  // namespace aisc
