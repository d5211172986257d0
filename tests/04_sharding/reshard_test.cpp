// Where elements go when the number of ranks changes, and the exchange that takes them there.
#include "04_sharding/more/reshard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using UnitCounts =
    std::vector<std::vector<std::int64_t>>;  // of each unit's parameters, in elements

FlatLayout layout_of(const UnitCounts& counts, int ranks, const std::string& name = "unit") {
  std::deque<Parameter> parameters;
  std::vector<Unit> units;
  for (const auto& unit : counts) {
    units.push_back({name + std::to_string(units.size()), {}});
    for (const std::int64_t count : unit) {
      parameters.push_back(whole_parameter("p" + std::to_string(parameters.size()), {count},
                                           Init::constant(0), false));
      units.back().parameters.push_back(&parameters.back());
    }
  }
  return FlatLayout(units, ranks);
}

// Where an element lies.
struct Spot {
  int rank;
  std::int64_t offset;  // in the rank's buffer
};

// Of each element of each parameter in order, found by walking through all ranks' buffers.
std::vector<std::vector<Spot>> spots(const FlatLayout& layout, int ranks) {
  std::vector<Spot> flat(index(layout.count()));
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t offset = 0;
    for (std::size_t u = 0; u < layout.units().size(); ++u) {
      const Range shard = layout.shard(u, rank);
      for (std::int64_t i = shard.begin; i < shard.end; ++i) flat[index(i)] = {rank, offset++};
    }
  }
  std::vector<std::vector<Spot>> all;
  for (const FlatUnit& unit : layout.units())
    for (const Range& p : unit.parameters)
      all.emplace_back(flat.begin() + p.begin, flat.begin() + p.end);
  return all;
}

// The same moves, element by element, joined where both sides go on.
std::vector<Move> expected_moves(const FlatLayout& before, int ranks_before,
                                 const FlatLayout& after, int ranks_after) {
  const auto old = spots(before, ranks_before), now = spots(after, ranks_after);
  std::vector<Move> moves;
  for (std::size_t p = 0; p < old.size(); ++p)
    for (std::size_t i = 0; i < old[p].size(); ++i) {
      const Spot &from = old[p][i], &to = now[p][i];
      if (i > 0 && moves.back().from == from.rank && moves.back().to == to.rank &&
          moves.back().from_begin + moves.back().count == from.offset &&
          moves.back().to_begin + moves.back().count == to.offset)
        ++moves.back().count;
      else
        moves.push_back({from.rank, from.offset, to.rank, to.offset, 1});
    }
  return moves;
}

// "64 elements from offset 128 of rank 0 to offset 0 of rank 1"
std::string text_of(const std::vector<Move>& moves, std::size_t i) {
  if (i >= moves.size()) return "none";
  const Move& m = moves[i];
  return fmt::format("{} elements from offset {} of rank {} to offset {} of rank {}", m.count,
                     m.from_begin, m.from, m.to_begin, m.to);
}

void expect_moves(const UnitCounts& counts, int ranks_before, int ranks_after,
                  const std::vector<Move>& expected) {
  const std::vector<Move> found = reshard_moves(layout_of(counts, ranks_before), ranks_before,
                                                layout_of(counts, ranks_after), ranks_after);
  std::size_t i = 0;
  while (i < std::min(found.size(), expected.size()) && found[i] == expected[i]) ++i;
  EXPECT_TRUE(found == expected) << fmt::format(
      "{} -> {} ranks: {} moves, expected {}; move {} is {}, expected {}", ranks_before,
      ranks_after, found.size(), expected.size(), i, text_of(found, i), text_of(expected, i));
}

void expect_moves_of(const UnitCounts& counts, int before, int after) {
  expect_moves(counts, before, after,
               expected_moves(layout_of(counts, before), before, layout_of(counts, after), after));
}

UnitCounts drawn_counts(const std::string& name) {
  UnitCounts counts(index(drawn(name + " units", 1, 4)));
  for (std::size_t u = 0; u < counts.size(); ++u) {
    counts[u].resize(index(drawn(name + " parameters " + std::to_string(u), 1, 3)));
    for (std::size_t p = 0; p < counts[u].size(); ++p)
      counts[u][p] = drawn(name + std::to_string(u) + "," + std::to_string(p), 1, 700);
  }
  return counts;
}

const std::vector<std::pair<int, int>> kRanks = {{4, 2}, {2, 3}, {1, 4}, {4, 1}, {3, 3},
                                                 {7, 3}, {3, 7}, {2, 4}, {1, 1}};

// reshard.h shows it. The unit of 300 is 384 with its padding, on 2 and on 3 ranks; that of 70 is
// 128 on 2 ranks and 192 on 3, shards of 64 both times.
TEST(ReshardMoves, FromTwoRanksToThreeByHand) {
  expect_moves({{300}, {70}}, 2, 3,
               {{0, 0, 0, 0, 128},     // 0..127 stay
                {0, 128, 1, 0, 64},    // 128..191: the end of rank 0's shard
                {1, 0, 1, 64, 64},     // 192..255
                {1, 64, 2, 0, 44},     // 256..299; padding stays behind
                {0, 192, 0, 128, 64},  // the second unit begins behind the first one's shard
                {1, 192, 1, 128, 6}});
}

// 100 and 70 elements are shards of 64 on 2 and on 3 ranks: other layouts, and nothing moves.
TEST(ReshardMoves, PaddingAloneIsAnothersByHand) {
  expect_moves({{100}, {70}}, 2, 3,
               {{0, 0, 0, 0, 64}, {1, 0, 1, 0, 36}, {0, 64, 0, 64, 64}, {1, 64, 1, 64, 6}});
}

// Parameters of 100 and 70 elements in one unit: at 0 and 128 of it. On 1 rank it has 256 elements,
// on 2 shards of 128, on 4 shards of 64.
TEST(ReshardMoves, ParametersOfAUnitByHand) {
  expect_moves({{100, 70}}, 4, 2,
               {{0, 0, 0, 0, 64}, {1, 0, 0, 64, 36}, {2, 0, 1, 0, 64}, {3, 0, 1, 64, 6}});
  expect_moves({{100, 70}}, 1, 2, {{0, 0, 0, 0, 100}, {0, 128, 1, 0, 70}});
}

TEST(ReshardMoves, OfDrawnSizesAndOfThoseAtTheEdges) {
  for (const auto& [before, after] : kRanks) {
    for (int i = 0; i < 4; ++i)
      expect_moves_of(drawn_counts("reshard " + std::to_string(i)), before, after);
    expect_moves_of({{1}, {63}, {64}, {65}, {127, 1, 129}}, before, after);
    expect_moves_of({{64 * 12}, {64 * 12 - 1}, {64 * 12 + 1}}, before, after);
    expect_moves_of({{}, {0}, {200, 0, 3}}, before, after);
  }
}

TEST(ReshardGiven, LayoutsOfOtherUnitsAreErrors) {
  const FlatLayout before = layout_of({{100}, {70, 3}}, 2);
  const std::pair<FlatLayout, const char*> others[] = {
      {layout_of({{100}, {70, 3}}, 3, "layer"), "unit 0 is unit0 before and layer0 after"},
      {layout_of({{100}}, 3), "unit1 is only in the layout before"},
      {layout_of({{100}, {70, 3}, {1}}, 3), "unit2 is only in the layout after"},
      {layout_of({{100}, {73}}, 3), "unit1 has 2 parameters before and 1 after"},
      {layout_of({{100}, {70, 4}}, 3), "unit1: parameter 1 has 3 elements before and 4 after"}};
  for (const auto& [after, says] : others)
    EXPECT_TRUE(error_says([&, &to = after] { reshard_moves(before, 2, to, 3); }, {says}));
}

TEST(ReshardGiven, LayoutsForOtherRanksAreErrors) {
  const FlatLayout two = layout_of({{100}}, 2), three = layout_of({{100}}, 3);
  EXPECT_TRUE(error_says([&] { reshard_moves(two, 4, three, 3); },
                         {"the layout before was made for 2 ranks, 4 were said"}));
  EXPECT_TRUE(error_says([&] { reshard_moves(two, 2, three, 1); },
                         {"the layout after was made for 3 ranks, 1 were said"}));
  EXPECT_TRUE(error_says([&] { reshard_moves(two, 2, three, 0); }, {"3 ranks, 0 were said"}));
}

constexpr double kUntouched = -1;

// A rank's buffer: parameters hold the numbers of their elements (in BF16 modulo 251: up to 256 are
// exact), padding what nobody touched.
std::vector<double> numbered(const FlatLayout& layout, int ranks, int rank, DType dtype) {
  std::vector<double> buffer(index(rank < ranks ? layout.count() / ranks : 0), kUntouched);
  std::int64_t number = 0;
  for (const auto& parameter : spots(layout, ranks))
    for (const Spot& spot : parameter) {
      if (spot.rank == rank)
        buffer[index(spot.offset)] =
            static_cast<double>(dtype == DType::BF16 ? number % 251 : number);
      ++number;
    }
  return buffer;
}

Tensor tensor_of(const std::vector<double>& numbers, DType dtype, Device& device) {
  if (numbers.empty()) return Tensor();
  return from_doubles(numbers, {std::ssize(numbers)}, dtype, device);
}

void expect_numbers(const std::string& where, const Tensor& found,
                    const std::vector<double>& expected) {
  if (found)
    EXPECT_TRUE(numbers_are(where, found, expected, {}, 0));
  else
    EXPECT_TRUE(expected.empty()) << where;
}

// Carries the moves out in a world of `ranks`, and looks at every element and every byte sent.
void expect_resharded(const UnitCounts& counts, int before, int after, DType dtype, int ranks = 0) {
  const FlatLayout old = layout_of(counts, before), now = layout_of(counts, after);
  const std::vector<Move> moves = reshard_moves(old, before, now, after);
  const std::vector<Move> back = reshard_moves(now, after, old, before);
  launch(late(std::max({ranks, before, after})), [&](const Rank& rank) {
    const int me = rank.world.rank();
    const std::string where = fmt::format("{} -> {} ranks, rank {}", before, after, me);
    const auto had = numbered(old, before, me, dtype), expected = numbered(now, after, me, dtype);
    const auto untouched = [&](std::size_t count) {
      return tensor_of(std::vector<double>(count, kUntouched), dtype, rank.device);
    };
    const Tensor from = tensor_of(had, dtype, rank.device), to = untouched(expected.size());
    reshard(rank.world, moves, from, to);
    expect_numbers(where, to, expected);
    expect_numbers(where + ", the old buffer", from, had);
    std::int64_t leaving = 0;
    for (const Move& m : expected_moves(old, before, now, after))
      if (m.from == me && m.to != me) leaving += m.count;
    EXPECT_EQ(rank.world.stats().sent().wire_bytes,
              leaving * static_cast<std::int64_t>(size_of(dtype)))
        << where << ": bytes of the elements that leave this rank, each once";
    if (before == after) {
      EXPECT_EQ(rank.world.stats()[CommOp::Exchange].calls, 0) << where << ": nothing moves";
    }

    const Tensor again = untouched(had.size());
    reshard(rank.world, back, to, again);
    expect_numbers(where + " and back", again, had);
  });
}

TEST(Reshard, BringsEveryElementOnce) {
  for (const auto& [before, after] : kRanks) {
    expect_resharded({{300}, {70}}, before, after, DType::F32);
    expect_resharded(drawn_counts("moved"), before, after, DType::F32);
    expect_resharded(drawn_counts("moved, short"), before, after, DType::BF16);
  }
}

TEST(Reshard, OtherRanksTakeNoPart) { expect_resharded({{300, 5}, {70}}, 2, 3, DType::F32, 5); }

// Two messages from rank 0 to rank 1, in the order of the moves; one element stays.
TEST(ReshardGiven, CarriesOutMovesByHand) {
  launch(late(2), [](const Rank& rank) {
    const bool first = rank.world.rank() == 0;
    const std::vector<Move> moves{
        {0, 2, 1, 0, 1}, {0, 0, 0, 1, 1}, {1, 0, 0, 0, 1}, {0, 1, 1, 2, 1}};
    const Tensor before =
        from_doubles(first ? std::vector<double>{10, 11, 12} : std::vector<double>{20, 21, 22}, {3},
                     DType::F32, rank.device);
    const Tensor after = from_doubles({1, 1, 1}, {3}, DType::F32, rank.device);
    reshard(rank.world, moves, before, after);
    EXPECT_EQ(to_doubles(after),
              first ? (std::vector<double>{20, 10, 1}) : (std::vector<double>{12, 1, 11}));
    EXPECT_EQ(rank.world.stats().sent().wire_bytes, first ? 8 : 4);
    EXPECT_EQ(rank.world.stats()[CommOp::Exchange].calls, 1);
  });
}

TEST(ReshardGiven, BuffersThatDoNotFitAreErrors) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    const Tensor three({3}, DType::F32, rank.device), four({4}, DType::F32, rank.device);
    const Tensor other({4}, DType::BF16, rank.device);
    const std::vector<Move> moves{{0, 0, 0, 0, 4}};
    EXPECT_TRUE(error_says([&] { reshard(rank.world, moves, three, four); },
                           {"rank 0", "elements 0 to 4 of the buffer before, which has 3"}));
    EXPECT_TRUE(error_says([&] { reshard(rank.world, moves, four, three); },
                           {"rank 0", "elements 0 to 4 of the buffer after, which has 3"}));
    EXPECT_TRUE(error_says([&] { reshard(rank.world, moves, ConstView(), four); },
                           {"elements 0 to 4 of the buffer before, which has 0"}));
    EXPECT_TRUE(error_says([&] { reshard(rank.world, moves, four, other); },
                           {"rank 0", "F32 before and BF16 after"}));
  });
}

}  // namespace
}  // namespace aisc
