// What lies in a rank's shard: by hand, and at every size and number of ranks.
#include "04_sharding/shards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/drawn.h"
#include "tests/support/shard_slices.h"

namespace aisc {
namespace {

// "0.1[28..98) at 128 of the model, 0 of the shards"
std::string piece(const Parameter& p, std::int64_t begin, std::int64_t count,
                  std::ptrdiff_t in_model, std::ptrdiff_t in_shards) {
  return fmt::format("{}[{}..{}) at {} of the model, {} of the shards", p.name, begin,
                     begin + count, in_model, in_shards);
}

// Units of parameters of these sizes.
struct Units {
  explicit Units(const std::vector<std::vector<std::int64_t>>& sizes, int ranks_of = 1)
      : ranks(ranks_of) {
    for (std::size_t u = 0; u < sizes.size(); ++u) {
      units.push_back({fmt::format("unit {}", u), {}});
      for (std::size_t i = 0; i < sizes[u].size(); ++i) {
        parameters.push_back(std::make_unique<Parameter>(
            whole_parameter(fmt::format("{}.{}", u, i), {sizes[u][i]}, Init::constant(0), true)));
        units.back().parameters.push_back(parameters.back().get());
      }
    }
    layout = std::make_unique<FlatLayout>(units, ranks);
  }
  std::vector<std::string> pieces(int rank) const {
    std::vector<std::string> said;
    for (const ShardPiece& p : shard_pieces(units, *layout, rank, ranks))
      said.push_back(piece(*p.parameter, p.begin, p.count, p.in_model, p.in_shards));
    return said;
  }

  int ranks;
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Unit> units;
  std::unique_ptr<FlatLayout> layout;
};

using Said = std::vector<std::string>;

// A unit of 100 and 98 elements: these take [0, 100) and [128, 226), since parameters begin at
// multiples of 64, and the unit 256, of which each of two ranks has 128. Then one of 30, padded to
// 128: 64 for each rank, of which rank 1's are padding.
TEST(Shards, OfTwoRanksByHand) {
  const Units two({{100, 98}, {30}}, 2);
  EXPECT_EQ(two.pieces(0), (Said{"0.0[0..100) at 0 of the model, 0 of the shards",
                                 "1.0[0..30) at 256 of the model, 128 of the shards"}))
      << "rank 0 of 2, units of 100 + 98 and of 30 elements, padded to 256 and 128: its pieces "
      << "(unit.parameter[elements of it))";
  EXPECT_EQ(two.pieces(1), (Said{"0.1[0..98) at 128 of the model, 0 of the shards"}))
      << "rank 1 has nothing of the second unit: its shard there is padding";
}

// 300 elements, padded to 384, in three shards of 128: the parameter is cut twice.
TEST(Shards, CutParametersAnywhere) {
  const Units three({{300}, {64, 400}}, 3);
  EXPECT_EQ(three.pieces(0), (Said{"0.0[0..128) at 0 of the model, 0 of the shards",
                                   "1.0[0..64) at 384 of the model, 128 of the shards",
                                   "1.1[0..128) at 448 of the model, 192 of the shards"}));
  EXPECT_EQ(three.pieces(1), (Said{"0.0[128..256) at 128 of the model, 0 of the shards",
                                   "1.1[128..320) at 576 of the model, 128 of the shards"}))
      << "the second rank's parts begin inside of parameters";
  EXPECT_EQ(three.pieces(2), (Said{"0.0[256..300) at 256 of the model, 0 of the shards",
                                   "1.1[320..400) at 768 of the model, 128 of the shards"}));
}

// The oracle takes memory apart in place of counting.
TEST(Shards, OfAllRanksAreEveryElementOnce) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    std::vector<std::vector<std::int64_t>> sizes;
    for (int u = 0; u < 4; ++u) {
      sizes.emplace_back();
      for (int i = 0; i < 3; ++i)
        sizes.back().push_back(drawn(fmt::format("shards {} {} {}", ranks, u, i), 1, 500));
    }
    const Units all(sizes, ranks);
    CpuDevice host;
    const Tensor model = Tensor::zeros({all.layout->count()}, DType::F64, host);
    for (int rank = 0; rank < ranks; ++rank) {
      const Tensor shards = Tensor::zeros({all.layout->count() / ranks}, DType::F64, host);
      Said expected;
      for (std::size_t u = 0; u < all.units.size(); ++u) {
        const Range range = all.layout->shard(u, rank);
        const std::int64_t own = all.layout->units()[u].range.begin / ranks;
        for (const OptimizerSlice& s : slices_in(all.units[u], all.layout->units()[u], range,
                                                 model.view().flat(range.begin, range.count()),
                                                 shards.view().flat(own, range.count())))
          expected.push_back(piece(*s.parameter, s.begin, s.weight.count(),
                                   s.weight.data<double>() - model.data<double>(),
                                   s.gradient.data<double>() - shards.data<double>()));
      }
      EXPECT_EQ(all.pieces(rank), expected) << ranks << " ranks, rank " << rank;
    }
  }
}

TEST(ShardsGiven, OwnRangesFollowEachOther) {
  const Units three({{300}, {64, 400}}, 3);
  EXPECT_EQ(own_range(*three.layout, 0, 3), (Range{0, 128}));
  EXPECT_EQ(own_range(*three.layout, 1, 3), (Range{128, 320}));
}

}  // namespace
}  // namespace aisc
