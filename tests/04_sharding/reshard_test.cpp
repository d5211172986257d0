// Where elements go when the number of ranks changes, and the exchange that takes them there.
#include "04_sharding/more/reshard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using UnitCounts =
    std::vector<std::vector<std::int64_t>>;  // of each unit's parameters, in elements

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

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
  std::vector<Spot> flat(at(layout.count()));
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t offset = 0;
    for (std::size_t u = 0; u < layout.units().size(); ++u) {
      const Range shard = layout.shard(u, rank);
      for (std::int64_t i = shard.begin; i < shard.end; ++i) flat[at(i)] = {rank, offset++};
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

std::string text(const Move& m) {
  return std::to_string(m.count) + " elements from offset " + std::to_string(m.from_begin) +
         " of rank " + std::to_string(m.from) + " to offset " + std::to_string(m.to_begin) +
         " of rank " + std::to_string(m.to);
}

std::int64_t elements_of(const std::vector<Move>& moves) {
  std::int64_t sum = 0;
  for (const Move& m : moves) sum += m.count;
  return sum;
}

std::string usual_cause(const std::vector<Move>& found, const std::vector<Move>& expected) {
  if (elements_of(found) > elements_of(expected))
    return "More elements move than the parameters have: does padding move?";
  if (elements_of(found) < elements_of(expected))
    return "Elements are missing: does each parameter get to its end?";
  if (found.size() > expected.size())
    return "All elements move, in too many pieces: a move ends only where its parameter ends, or "
           "one of the two shards.";
  if (found.size() < expected.size())
    return "All elements move, in too few pieces: each parameter begins a move, and each shard.";
  bool same_ranks = true;
  for (std::size_t i = 0; i < found.size(); ++i)
    same_ranks &= found[i].from == expected[i].from && found[i].to == expected[i].to;
  return same_ranks ? "The ranks are right and offsets are not: they count from the begin of the "
                      "rank's buffer, in which the shards of all units before come first."
                    : "Which rank has an element follows from its place in its unit.";
}

void expect_moves(const std::string& where, const std::vector<Move>& found,
                  const std::vector<Move>& expected) {
  if (found == expected) return;
  std::size_t i = 0;
  while (i < std::min(found.size(), expected.size()) && found[i] == expected[i]) ++i;
  ADD_FAILURE() << where << ": move " << i << " is "
                << (i < found.size() ? text(found[i]) : "missing") << ", expected "
                << (i < expected.size() ? text(expected[i]) : "no more") << "; " << found.size()
                << " moves, expected " << expected.size() << ".\n"
                << usual_cause(found, expected);
}

void expect_moves_of(const UnitCounts& counts, int before, int after) {
  const FlatLayout old = layout_of(counts, before), now = layout_of(counts, after);
  expect_moves(std::to_string(before) + " -> " + std::to_string(after) + " ranks",
               reshard_moves(old, before, now, after), expected_moves(old, before, now, after));
}

UnitCounts drawn_counts(const std::string& name) {
  UnitCounts counts(at(drawn(name + " units", 1, 4)));
  for (std::size_t u = 0; u < counts.size(); ++u) {
    counts[u].resize(at(drawn(name + " parameters " + std::to_string(u), 1, 3)));
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
  const UnitCounts counts{{300}, {70}};
  expect_moves("units of 300 and 70, 2 -> 3 ranks",
               reshard_moves(layout_of(counts, 2), 2, layout_of(counts, 3), 3),
               {{0, 0, 0, 0, 128},     // 0..127 stay
                {0, 128, 1, 0, 64},    // 128..191: the end of rank 0's shard
                {1, 0, 1, 64, 64},     // 192..255
                {1, 64, 2, 0, 44},     // 256..299; padding stays behind
                {0, 192, 0, 128, 64},  // the second unit begins behind the first one's shard
                {1, 192, 1, 128, 6}});
}

// 100 and 70 elements are shards of 64 on 2 and on 3 ranks: other layouts, and nothing moves.
TEST(ReshardMoves, PaddingAloneIsAnothersByHand) {
  const UnitCounts counts{{100}, {70}};
  expect_moves("units of 100 and 70, 2 -> 3 ranks",
               reshard_moves(layout_of(counts, 2), 2, layout_of(counts, 3), 3),
               {{0, 0, 0, 0, 64}, {1, 0, 1, 0, 36}, {0, 64, 0, 64, 64}, {1, 64, 1, 64, 6}});
}

// Parameters of 100 and 70 elements in one unit: at 0 and 128 of it. On 1 rank it has 256 elements,
// on 2 shards of 128, on 4 shards of 64.
TEST(ReshardMoves, ParametersOfAUnitByHand) {
  const UnitCounts counts{{100, 70}};
  expect_moves("a unit of 100 and 70, 4 -> 2 ranks",
               reshard_moves(layout_of(counts, 4), 4, layout_of(counts, 2), 2),
               {{0, 0, 0, 0, 64}, {1, 0, 0, 64, 36}, {2, 0, 1, 0, 64}, {3, 0, 1, 64, 6}});
  expect_moves("a unit of 100 and 70, 1 -> 2 ranks",
               reshard_moves(layout_of(counts, 1), 1, layout_of(counts, 2), 2),
               {{0, 0, 0, 0, 100}, {0, 128, 1, 0, 70}});
}

TEST(ReshardMoves, OfDrawnSizes) {
  for (const auto& [before, after] : kRanks)
    for (int i = 0; i < 4; ++i)
      expect_moves_of(drawn_counts("reshard " + std::to_string(i)), before, after);
}

TEST(ReshardMoves, OfSizesAtTheEdges) {
  for (const auto& [before, after] : kRanks) {
    expect_moves_of({{1}, {63}, {64}, {65}, {127, 1, 129}}, before, after);
    expect_moves_of({{64 * 12}, {64 * 12 - 1}, {64 * 12 + 1}}, before, after);
  }
}

TEST(ReshardMoves, OfUnitsWithoutElements) { expect_moves_of({{}, {0}, {200, 0, 3}}, 2, 3); }

TEST(ReshardMoves, StayWhereTheNumberOfRanksDoes) {
  const FlatLayout layout = layout_of(drawn_counts("same"), 3);
  for (const Move& m : reshard_moves(layout, 3, layout, 3))
    EXPECT_TRUE(m.from == m.to && m.from_begin == m.to_begin) << text(m);
}

TEST(ReshardGiven, LayoutsOfOtherUnitsAreErrors) {
  const auto moves = [](const FlatLayout& before, const FlatLayout& after) {
    return [&] { reshard_moves(before, 2, after, 3); };
  };
  const FlatLayout two = layout_of({{100}, {70, 3}}, 2);
  EXPECT_TRUE(error_says(moves(two, layout_of({{100}, {70, 3}}, 3, "layer")),
                         {"unit 0 is unit0 before and layer0 after"}));
  EXPECT_TRUE(
      error_says(moves(two, layout_of({{100}}, 3)), {"unit1 is only in the layout before"}));
  EXPECT_TRUE(error_says(moves(two, layout_of({{100}, {70, 3}, {1}}, 3)),
                         {"unit2 is only in the layout after"}));
  EXPECT_TRUE(error_says(moves(two, layout_of({{100}, {73}}, 3)),
                         {"unit1 has 2 parameters before and 1 after"}));
  EXPECT_TRUE(error_says(moves(two, layout_of({{100}, {70, 4}}, 3)),
                         {"unit1", "parameter 1 has 3 elements before and 4 after"}));
}

TEST(ReshardGiven, LayoutsForOtherRanksAreErrors) {
  const FlatLayout two = layout_of({{100}}, 2), three = layout_of({{100}}, 3);
  EXPECT_TRUE(error_says([&] { reshard_moves(two, 4, three, 3); },
                         {"the layout before was made for 2 ranks, 4 were said"}));
  EXPECT_TRUE(error_says([&] { reshard_moves(two, 2, three, 1); },
                         {"the layout after was made for 3 ranks, 1 were said"}));
  EXPECT_TRUE(error_says([&] { reshard_moves(two, 2, three, 0); }, {"3 ranks, 0 were said"}));
}

// The bits of an element are its number; those of padding are of no element.
template <class Bits>
constexpr Bits kPoison = static_cast<Bits>(-1);

template <class Bits>
std::vector<Bits> poisoned(std::int64_t count) {
  return std::vector<Bits>(at(count), kPoison<Bits>);
}

// A rank's buffer: parameters hold the numbers of their elements, padding is poison.
template <class Bits>
std::vector<Bits> numbered(const FlatLayout& layout, int ranks, int rank) {
  std::vector<Bits> buffer = poisoned<Bits>(rank < ranks ? layout.count() / ranks : 0);
  Bits number = 0;
  for (const auto& parameter : spots(layout, ranks))
    for (const Spot& spot : parameter) {
      if (spot.rank == rank) buffer[at(spot.offset)] = number;
      ++number;
    }
  return buffer;
}

template <class Bits>
Tensor tensor_of(const std::vector<Bits>& bits, DType dtype, Device& device) {
  if (bits.empty()) return Tensor();
  Tensor tensor({static_cast<std::int64_t>(bits.size())}, dtype, device);
  std::memcpy(tensor.view().raw(), bits.data(), tensor.bytes());
  return tensor;
}

template <class Bits>
std::string text_of(Bits bits) {
  return bits == kPoison<Bits> ? "what was there before"
                               : std::string("element ").append(std::to_string(bits));
}

template <class Bits>
void expect_bits(const std::string& where, const Tensor& found, const std::vector<Bits>& expected) {
  std::vector<Bits> bits(at(found.count()));
  if (!bits.empty()) std::memcpy(bits.data(), found.view().raw(), found.bytes());
  ASSERT_EQ(bits.size(), expected.size()) << where;
  for (std::size_t i = 0; i < bits.size(); ++i)
    ASSERT_EQ(bits[i], expected[i]) << where << ": at offset " << i << " is " << text_of(bits[i])
                                    << ", expected " << text_of(expected[i]);
}

template <class Bits>
std::int64_t leaving(const std::vector<Move>& moves, int rank) {
  std::int64_t count = 0;
  for (const Move& m : moves)
    if (m.from == rank && m.to != rank) count += m.count;
  return count * static_cast<std::int64_t>(sizeof(Bits));
}

// Carries `moves` out in a world of `ranks`, and looks at every element and every byte sent.
template <class Bits>
void expect_resharded(const UnitCounts& counts, int before, int after, DType dtype, int ranks = 0) {
  const FlatLayout old = layout_of(counts, before), now = layout_of(counts, after);
  const std::vector<Move> moves = reshard_moves(old, before, now, after);
  const std::vector<Move> back = reshard_moves(now, after, old, before);
  launch(late(std::max({ranks, before, after})), [&](const Rank& rank) {
    const int me = rank.world.rank();
    const std::string where = std::to_string(before) + " -> " + std::to_string(after) +
                              " ranks, rank " + std::to_string(me);
    const std::vector<Bits> had = numbered<Bits>(old, before, me);
    const std::vector<Bits> expected = numbered<Bits>(now, after, me);
    const Tensor from = tensor_of(had, dtype, rank.device);
    const Tensor to = tensor_of(poisoned<Bits>(std::ssize(expected)), dtype, rank.device);
    reshard(rank.world, moves, from, to);
    expect_bits(where, to, expected);
    expect_bits(where + ", the old buffer", from, had);
    const std::int64_t bytes = leaving<Bits>(expected_moves(old, before, now, after), me);
    EXPECT_EQ(rank.world.stats().sent().wire_bytes, bytes)
        << where << ": bytes of the elements that leave this rank, each once";

    const Tensor again = tensor_of(poisoned<Bits>(std::ssize(had)), dtype, rank.device);
    reshard(rank.world, back, to, again);
    expect_bits(where + " and back", again, had);
  });
}

TEST(Reshard, BringsEveryElementOnce) {
  for (const auto& [before, after] : kRanks) {
    expect_resharded<std::uint32_t>({{300}, {70}}, before, after, DType::F32);
    expect_resharded<std::uint32_t>(drawn_counts("moved"), before, after, DType::F32);
    expect_resharded<std::uint16_t>(drawn_counts("moved, short"), before, after, DType::BF16);
  }
}

TEST(Reshard, OtherRanksTakeNoPart) {
  expect_resharded<std::uint32_t>({{300, 5}, {70}}, 2, 3, DType::F32, 5);
}

TEST(Reshard, SendsNothingWhereTheNumberOfRanksStays) {
  const FlatLayout layout = layout_of(drawn_counts("stays"), 3);
  const std::vector<Move> moves = reshard_moves(layout, 3, layout, 3);
  launch(late(3), [&](const Rank& rank) {
    const auto bits = numbered<std::uint32_t>(layout, 3, rank.world.rank());
    const Tensor to = tensor_of(poisoned<std::uint32_t>(std::ssize(bits)), DType::F32, rank.device);
    reshard(rank.world, moves, tensor_of(bits, DType::F32, rank.device), to);
    expect_bits("rank " + std::to_string(rank.world.rank()), to, bits);
    EXPECT_EQ(rank.world.stats()[CommOp::Exchange].calls, 0);
  });
}

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
