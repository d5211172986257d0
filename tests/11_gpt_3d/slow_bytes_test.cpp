// Bytes between nodes in every order of a mesh: by hand, and against all pairs of ranks.
#include "11_gpt_3d/slow_bytes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/11_gpt_3d/counted_places.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

// Every pair of ranks: what the one sends to the other, told from their places alone.
struct Ways {
  bool rings = true;           // the last of tp and dp sends to the first
  bool back_and_forth = true;  // tables go both ways
  bool ring_of_stages = false;
};
std::int64_t bytes_of_pair(const MeshShape& shape, const MeshPlace& a, const MeshPlace& b,
                           const StepBytes& bytes, const Ways& ways) {
  const bool same_tp = a.tp == b.tp, same_dp = a.dp == b.dp, same_pp = a.pp == b.pp;
  const auto follows = [&](int from, int to, int size) {
    return to == from + 1 || (ways.rings && from == size - 1 && to == 0 && size > 1);
  };
  std::int64_t sum = 0;
  if (same_dp && same_pp && follows(a.tp, b.tp, shape.tp)) sum += bytes.tp;
  if (same_tp && same_pp && follows(a.dp, b.dp, shape.dp)) sum += bytes.dp;
  if (same_tp && same_dp) {
    if (b.pp == a.pp + 1) sum += bytes.forward;
    if (b.pp == a.pp - 1) sum += bytes.backward;
    const int last = shape.pp - 1;
    if (ways.ring_of_stages && last > 1 && a.pp == last && b.pp == 0) sum += bytes.forward;
    if (ways.ring_of_stages && last > 1 && a.pp == 0 && b.pp == last) sum += bytes.backward;
    if (last > 0 && a.pp == 0 && b.pp == last) sum += bytes.tables;
    if (last > 0 && a.pp == last && b.pp == 0 && ways.back_and_forth) sum += bytes.tables;
  }
  return sum;
}

// `to_node(rank)` says in which node a rank is.
template <class ToNode>
std::int64_t of_all_pairs(const MeshShape& shape, const MeshOrder& order, const StepBytes& bytes,
                          const ToNode& to_node, const Ways& ways = {}) {
  const std::vector<MeshPlace> places = counted_places(shape, order);
  std::int64_t sum = 0;
  for (int a = 0; a < shape.ranks(); ++a)
    for (int b = 0; b < shape.ranks(); ++b)
      if (to_node(a) != to_node(b))
        sum += bytes_of_pair(shape, places[static_cast<std::size_t>(a)],
                             places[static_cast<std::size_t>(b)], bytes, ways);
  return sum;
}

std::int64_t expected_bytes(const MeshShape& shape, const MeshOrder& order, int per_node,
                            const StepBytes& bytes, const Ways& ways = {}) {
  return of_all_pairs(
      shape, order, bytes, [&](int rank) { return rank / per_node; }, ways);
}

std::string usual_cause(const MeshShape& shape, const MeshOrder& order, int per_node,
                        const StepBytes& bytes, std::int64_t found) {
  const auto is = [&](const StepBytes& some, const Ways& ways = {}) {
    return found == expected_bytes(shape, order, per_node, some, ways);
  };
  StepBytes swapped = bytes, only_forward = bytes, no_tables = bytes;
  std::swap(swapped.tp, swapped.dp);
  only_forward.backward = 0;
  no_tables.tables = 0;
  if (is(bytes, {.rings = false})) return "in a ring the last rank sends to the first, too";
  if (is(bytes, {.ring_of_stages = true})) return "a pipeline is no ring";
  if (is(bytes, {.back_and_forth = false})) return "the tables go both ways";
  if (is(only_forward)) return "gradients go back from stage to stage, too";
  if (is(no_tables)) return "the tied tables go between the first and the last stage";
  if (found == of_all_pairs(shape, order, bytes, [](int rank) { return rank; }))
    return "bytes inside a node were counted, too";
  if (found == of_all_pairs(shape, order, bytes, [&](int rank) { return rank % per_node; }))
    return "the node of rank r is r / ranks_per_node, rounded down";
  if (bytes.tp > 0 && bytes.dp > 0 && is(swapped)) return "the bytes of tp and dp are swapped";
  if (order != kMeshOrder && found == expected_bytes(shape, kMeshOrder, per_node, bytes))
    return "this is so in the order tp,dp,pp: `order` is not looked at";
  return "each rank's bytes count where its receiver lies in another node";
}

void expect_bytes(const MeshShape& shape, const MeshOrder& order, int per_node,
                  const StepBytes& bytes, std::int64_t expected) {
  const std::int64_t found = bytes_between_nodes(shape, order, per_node, bytes);
  EXPECT_EQ(found, expected) << text_of(shape) << " in the order " << to_string(order)
                             << ", nodes of " << per_node << ", bytes of tp " << bytes.tp << ", dp "
                             << bytes.dp << ", forward " << bytes.forward << ", backward "
                             << bytes.backward << ", tables " << bytes.tables << ": " << found
                             << " bytes between nodes, expected " << expected << ". Usual cause: "
                             << usual_cause(shape, order, per_node, bytes, found);
}

// Ranks 0 1 and 2 3 are nodes.
TEST(SlowBytes, FourRanksByHand) {
  const MeshShape shape{.dp = 2, .tp = 2};
  expect_bytes(shape, kMeshOrder, 2, {.tp = 100, .dp = 10}, 40);
  expect_bytes(shape, kDataFirst, 2, {.tp = 100, .dp = 10}, 400);
  expect_bytes(shape, kMeshOrder, 4, {.tp = 100, .dp = 10}, 0);
  expect_bytes(shape, kMeshOrder, 1, {.tp = 100, .dp = 10}, 440);
}

// Groups of three, 0 1 2 and 3 4 5, in nodes of two: 1 to 2, 2 to 0, 3 to 4 and 5 to 3 leave one.
TEST(SlowBytes, ARingThatLiesAcrossNodesByHand) {
  expect_bytes({.dp = 2, .tp = 3}, kMeshOrder, 2, {.tp = 1}, 4);
  expect_bytes({.dp = 2, .tp = 3}, kMeshOrder, 2, {.dp = 1}, 6);  // 0 3, 1 4, 2 5: there and back
  expect_bytes({.tp = 3}, kMeshOrder, 2, {.tp = 7}, 14);
}

// Stages are ranks 0 1 2 3 in nodes of two: only the way between 1 and 2 leaves one. The tables
// are on 0 and 3.
TEST(SlowBytes, APipelineByHand) {
  const MeshShape shape{.pp = 4};
  expect_bytes(shape, kMeshOrder, 2, {.forward = 100}, 100);
  expect_bytes(shape, kMeshOrder, 2, {.backward = 10}, 10);
  expect_bytes(shape, kMeshOrder, 2, {.tables = 1}, 2);
  expect_bytes(shape, kMeshOrder, 1, {.forward = 100, .backward = 10, .tables = 1}, 332);
  expect_bytes({.pp = 2}, kMeshOrder, 1, {.forward = 100, .backward = 10, .tables = 1}, 112);
  expect_bytes({.pp = 1, .tp = 2}, kMeshOrder, 1, {.forward = 100, .backward = 10, .tables = 1}, 0);
}

// Two nodes of 8. Whichever direction is last goes between the nodes, and here also pp's stages 1
// and 2.
TEST(SlowBytes, ThePublishedExampleByHand) {
  expect_bytes(kPublished, kMeshOrder, 8, {.tp = 1000, .dp = 100, .forward = 10, .backward = 10},
               4 * 20);
  expect_bytes(kPublished, kMeshOrder, 8, {.tables = 1}, 4 * 2);
  expect_bytes(kPublished, parse_order("pp,dp,tp"), 8, {.tp = 1000, .dp = 100, .forward = 10},
               16 * 1000);
  expect_bytes(kPublished, parse_order("pp,tp,dp"), 8, {.tp = 1000, .dp = 100, .forward = 10},
               16 * 100);
}

TEST(SlowBytes, EveryOrderAgainstAllPairsOfRanks) {
  for (const MeshShape& shape : some_shapes())
    for (const MeshOrder& order : all_orders())
      for (const int per_node : {1, 2, 3, static_cast<int>(drawn("ranks a node", 4, 16))}) {
        const auto some = [&](const char* what) {
          return drawn(fmt::format("{} of {}", what, text_of(shape)), 1, 1000000);
        };
        const StepBytes bytes{some("tp"), some("dp"), some("forward"), some("backward"),
                              some("tables")};
        expect_bytes(shape, order, per_node, bytes, expected_bytes(shape, order, per_node, bytes));
        if (HasFailure()) return;
      }
}

TEST(SlowBytes, ManyBytesDoNotOverflow) {
  const std::int64_t terabyte = std::int64_t{1} << 40;
  expect_bytes({.dp = 2, .tp = 2}, kDataFirst, 2, {.tp = terabyte}, 4 * terabyte);
}

void expect_best(const MeshShape& shape, int per_node, const StepBytes& bytes,
                 const std::string& expected) {
  const std::string found = to_string(best_order(shape, per_node, bytes));
  EXPECT_EQ(found, expected) << text_of(shape) << ", nodes of " << per_node << ": best_order is "
                             << found << ", expected " << expected
                             << ". Usual cause: of equal orders the first of all_orders() is best";
}

TEST(SlowBytes, TheBestOrderByHand) {
  expect_best({.dp = 2, .tp = 2}, 2, {.tp = 100, .dp = 10}, "tp,dp,pp");
  expect_best({.dp = 2, .tp = 2}, 2, {.tp = 10, .dp = 100}, "dp,tp,pp");
  expect_best(kPublished, 8, {.tp = 1000, .dp = 100, .forward = 10, .backward = 10}, "tp,dp,pp");
  // Activations of many micro-batches, and small sums of gradients: dp goes between the nodes.
  expect_best(kPublished, 8, {.tp = 1000, .dp = 10, .forward = 500, .backward = 500}, "tp,pp,dp");
  expect_best(kPublished, 16, {.tp = 1, .dp = 2}, "tp,dp,pp");  // nothing leaves: all are equal
}

TEST(SlowBytes, TheBestOrderIsTheFirstWithTheFewest) {
  for (const MeshShape& shape : some_shapes())
    for (const int per_node : {2, 4, 8}) {
      const auto some = [&](const char* what) {
        return drawn(fmt::format("{} of the best of {}", what, text_of(shape)), 0, 3);
      };
      const StepBytes bytes{some("tp"), some("dp"), some("forward"), some("backward"),
                            some("tables")};
      MeshOrder expected = kMeshOrder;
      for (const MeshOrder& order : all_orders())
        if (expected_bytes(shape, order, per_node, bytes) <
            expected_bytes(shape, expected, per_node, bytes))
          expected = order;
      expect_best(shape, per_node, bytes, to_string(expected));
    }
}

// --- given -------------------------------------------------------------------------------------

TEST(SlowBytesGiven, RefusesNodesWithoutRanks) {
  EXPECT_EQ(message_of([] { bytes_between_nodes({.tp = 2}, kMeshOrder, 0, {.tp = 1}); }),
            "nodes of 0 ranks, expected 1 or more");
}

}  // namespace
}  // namespace aisc
