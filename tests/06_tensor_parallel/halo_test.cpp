// Halos of small images, by hand: parts of four pixels and of one, and halos wider than a part.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "06_tensor_parallel/more/spatial_split.h"
#include "common/comm/launch.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();  // what new memory holds

// An image of 1, 2, 3 .. over a grid of ranks, each of which needs `halo` pixels more on each side.
struct Image {
  Image(const RankGrid& of, std::int64_t rows, std::int64_t columns, std::int64_t halo)
      : grid(of), all{{0, rows}, {0, columns}}, owned(areas_of(of, rows, columns)) {
    for (const Area& own : owned)
      needed.push_back(common_part(all, {{own.rows.begin - halo, own.rows.end + halo},
                                         {own.columns.begin - halo, own.columns.end + halo}}));
  }
  // NaN where something is missing.
  std::vector<double> numbers_of(
      const Area& area,
      const std::function<bool(std::int64_t row, std::int64_t column)>& missing) const {
    std::vector<double> numbers;
    for (std::int64_t i = area.rows.begin; i < area.rows.end; ++i)
      for (std::int64_t j = area.columns.begin; j < area.columns.end; ++j)
        numbers.push_back(missing(i, j) ? kNaN
                                        : static_cast<double>(i * all.columns.count() + j + 1));
    return numbers;
  }
  std::vector<double> numbers_of(const Area& area) const {
    return numbers_of(area, [](auto, auto) { return false; });
  }

  RankGrid grid;
  Area all;
  std::vector<Area> owned, needed;
};

bool contains(const Range& interval, std::int64_t i) {
  return i >= interval.begin && i < interval.end;
}

void expect_halo(const Image& image) {
  launch({.ranks = image.grid.size(), .device = {.poison = true}, .bind = false}, [&](const Rank&
                                                                                          rank) {
    const auto r = static_cast<std::size_t>(rank.world.rank());
    const Area &own = image.owned[r], &needed = image.needed[r];
    const Tensor x =
        from_doubles(image.numbers_of(own), {1, 1, own.rows.count(), own.columns.count()},
                     DType::F64, rank.device);
    const auto but = [&](const auto& missing) {
      return image.numbers_of(needed, [&](std::int64_t i, std::int64_t j) {
        return missing(!contains(own.rows, i), !contains(own.columns, j));
      });
    };
    const auto far = [](const Range& interval, std::int64_t i) {
      return i + 1 < interval.begin || i > interval.end;
    };
    EXPECT_TRUE(numbers_are(
        fmt::format("{} x {} ranks, rank {}: x with its halo", image.grid.rows, image.grid.columns,
                    r),
        with_halo(rank.world, x, image.owned, image.needed), image.numbers_of(needed),
        {{"the corners, which ranks at the diagonal have, were forgotten",
          but([](bool above, bool aside) { return above && aside; })},
         {"a piece of one pixel were a corner: what the ranks beside this one have was forgotten",
          but([](bool above, bool aside) { return above != aside; })},
         {"nothing came from other ranks",
          but([](bool above, bool aside) { return above || aside; })},
         {"neighbours alone were asked: what they have not comes from the ranks behind them",
          image.numbers_of(needed, [&](std::int64_t i, std::int64_t j) {
            return far(own.rows, i) || far(own.columns, j);
          })}}));
  });
}

// Each rank has 2 x 2 of 1 .. 16, and needs one more row and column: rank 0 gets 3 and 7 from rank
// 1, 9 and 10 from rank 2, and 11 from rank 3, over the corner.
TEST(Halo, OfFourByFourOnTwoByTwoRanksByHand) { expect_halo({{2, 2}, 4, 4, 1}); }

// 1 2 3, 4 5 6, 7 8 9: a pixel a rank. Rank 0 gets 2 from rank 1, 4 from rank 3, and 5 over the
// corner, from rank 4.
TEST(Halo, OfPartsOfOnePixelByHand) { expect_halo({{3, 3}, 3, 3, 1}); }

// 1 2, 3 4, 5 6: a row a rank, and two more on each side. Rank 0 gets 3 4 from rank 1, and 5 6 from
// rank 2, which is behind it.
TEST(Halo, WiderThanANeighboursPartByHand) { expect_halo({{3, 1}, 3, 2, 2}); }

}  // namespace
}  // namespace aisc
