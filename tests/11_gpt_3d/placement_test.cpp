// Numbers of ranks and groups in any order of the directions: by hand, against the published
// example, against an odometer, and as communicators of ranks that run.
#include "11_gpt_3d/placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/comm/host_values.h"
#include "common/comm/launch.h"
#include "tests/11_gpt_3d/counted_places.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

using Groups = std::vector<std::vector<int>>;
constexpr MeshDirection kDirections[] = {kTensor, kData, kPipeline};

std::string text_of(const Groups& groups) {
  std::vector<std::string> texts;
  for (const std::vector<int>& group : groups)
    texts.push_back(fmt::format("{}", fmt::join(group, " ")));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string text_of(const MeshShape& shape, const MeshOrder& order) {
  return fmt::format("{} in the order {}", text_of(shape), to_string(order));
}

MeshOrder reversed(MeshOrder order) {
  std::reverse(order.begin(), order.end());
  return order;
}

// By the odometer: from each rank with index 0 to those that differ from it in this index alone.
Groups counted_groups(MeshDirection direction, const MeshShape& shape, const MeshOrder& order) {
  const std::vector<MeshPlace> places = counted_places(shape, order);
  Groups groups;
  for (const MeshPlace& first : places) {
    if (coordinate(first, direction) != 0) continue;
    std::vector<int>& group = groups.emplace_back();
    for (int i = 0; i < degree(shape, direction); ++i) {
      MeshPlace wanted = first;
      coordinate(wanted, direction) = i;
      const auto same = [&](const MeshPlace& p) { return same_place(p, wanted); };
      const auto found = std::find_if(places.begin(), places.end(), same);
      group.push_back(static_cast<int>(found - places.begin()));
    }
  }
  return groups;
}

// What somebody may have done who found this place, or this number.
template <class Found, class Same>
std::string usual_cause(const MeshOrder& order, const Found& found, const Same& found_in) {
  if (order != kMeshOrder && found_in(kMeshOrder, found))
    return fmt::format("this is so in the order {}: `order` is not looked at",
                       to_string(kMeshOrder));
  if (found_in(reversed(order), found)) return "the last direction was taken for the fastest";
  return "one more in a direction is as many ranks further as the product of the degrees before it";
}

void expect_place(const MeshShape& shape, const MeshOrder& order, int rank,
                  const MeshPlace& expected) {
  const auto is_in = [&](const MeshOrder& other, const MeshPlace& place) {
    return same_place(counted_places(shape, other).at(static_cast<std::size_t>(rank)), place);
  };
  const MeshPlace found = place_of(rank, shape, order);
  EXPECT_TRUE(same_place(found, expected))
      << text_of(shape, order) << ": the place of rank " << rank << " is " << text_of(found)
      << ", expected " << text_of(expected)
      << ". Usual cause: " << usual_cause(order, found, is_in);
  const auto has_number = [&](const MeshOrder& other, int number) {
    const std::vector<MeshPlace> places = counted_places(shape, other);
    return number >= 0 && number < shape.ranks() &&
           same_place(places[static_cast<std::size_t>(number)], expected);
  };
  const int number = rank_of(expected, shape, order);
  EXPECT_EQ(number, rank) << text_of(shape, order) << ": the rank of " << text_of(expected)
                          << " is " << number << ", expected " << rank
                          << ". Usual cause: " << usual_cause(order, number, has_number);
}

void expect_groups(MeshDirection direction, const MeshShape& shape, const MeshOrder& order,
                   const Groups& expected) {
  const Groups found = groups_of(direction, shape, order);
  std::string cause = "the ranks of a group have the same two other indices";
  for (const MeshDirection other : kDirections)
    if (other != direction && found == counted_groups(other, shape, order))
      cause = fmt::format("these are the groups of {}", to_string(other));
  if (found.size() > expected.size()) cause = "a group begins at its first rank alone";
  Groups sorted = found;
  std::sort(sorted.begin(), sorted.end());
  if (sorted == expected) cause = "groups come by their first rank";
  EXPECT_EQ(found, expected) << text_of(shape, order) << ": the groups of " << to_string(direction)
                             << " are " << text_of(found) << "; expected " << text_of(expected)
                             << ". Usual cause: " << cause;
}

// tp 2, dp 3. In the order dp, tp: ranks 0 1 2 have dp 0 1 2 and tp 0, ranks 3 4 5 have tp 1.
TEST(Placement, SixRanksByHand) {
  const MeshShape shape{.dp = 3, .tp = 2};
  expect_place(shape, kMeshOrder, 1, {.tp = 1});
  expect_place(shape, kMeshOrder, 4, {.dp = 2});
  expect_place(shape, kDataFirst, 0, {});
  expect_place(shape, kDataFirst, 1, {.dp = 1});
  expect_place(shape, kDataFirst, 3, {.tp = 1});
  expect_place(shape, kDataFirst, 5, {.dp = 2, .tp = 1});
  expect_groups(kTensor, shape, kMeshOrder, {{0, 1}, {2, 3}, {4, 5}});
  expect_groups(kData, shape, kMeshOrder, {{0, 2, 4}, {1, 3, 5}});
  expect_groups(kTensor, shape, kDataFirst, {{0, 3}, {1, 4}, {2, 5}});
  expect_groups(kData, shape, kDataFirst, {{0, 1, 2}, {3, 4, 5}});
}

TEST(Placement, TheGroupsOfThePublishedExample) {
  expect_place(kPublished, kMeshOrder, 2, {.dp = 1});
  expect_place(kPublished, kMeshOrder, 4, {.pp = 1});
  expect_place(kPublished, kMeshOrder, 15, {.dp = 1, .pp = 3, .tp = 1});
  expect_groups(kTensor, kPublished, kMeshOrder,
                {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
  expect_groups(kData, kPublished, kMeshOrder,
                {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}});
  expect_groups(kPipeline, kPublished, kMeshOrder,
                {{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
}

TEST(Placement, EveryOrderOfEveryShape) {
  for (const MeshShape& shape : some_shapes())
    for (const MeshOrder& order : all_orders()) {
      const std::vector<MeshPlace> places = counted_places(shape, order);
      for (int rank = 0; rank < shape.ranks(); ++rank)
        expect_place(shape, order, rank, places[static_cast<std::size_t>(rank)]);
      for (const MeshDirection direction : kDirections)
        expect_groups(direction, shape, order, counted_groups(direction, shape, order));
      if (HasFailure()) return;
    }
}

TEST(Placement, InTheOrderTpDpPpIsMeshs) {
  for (const MeshShape& shape : some_shapes())
    for (int rank = 0; rank < shape.ranks(); ++rank)
      expect_place(shape, kMeshOrder, rank, place_of(rank, shape));
}

// On ranks that run: each asks the others of its communicators which rank of the machine they are.
TEST(Placement, AMeshOfAPlacedWorldLiesOnTheMachineInThisOrder) {
  for (const MeshShape& shape : {MeshShape{.dp = 2, .pp = 2, .tp = 2}, MeshShape{.dp = 3, .tp = 2}})
    for (const MeshOrder& order : all_orders())
      launch({.ranks = shape.ranks(), .bind = false}, [&](const Rank& rank) {
        const int self = rank.world.rank();
        const auto world = placed(rank.world, shape, order);
        Mesh mesh(*world, shape);
        const auto members = [&](Communicator& group) {
          const std::int64_t own[] = {self};
          const std::vector<std::int64_t> all = all_numbers(group, own);
          return std::vector<int>(all.begin(), all.end());
        };
        const auto group_with_self = [&](MeshDirection direction) {
          for (const std::vector<int>& group : counted_groups(direction, shape, order))
            if (std::count(group.begin(), group.end(), self) > 0) return group;
          return std::vector<int>{};
        };
        const std::string where =
            fmt::format("{}, rank {}: its ranks in ", text_of(shape, order), self);
        EXPECT_EQ(members(mesh.tp()), group_with_self(kTensor)) << where << "tp";
        EXPECT_EQ(members(mesh.dp()), group_with_self(kData)) << where << "dp";
        EXPECT_EQ(members(mesh.pp()), group_with_self(kPipeline)) << where << "pp";
      });
}

// --- given -------------------------------------------------------------------------------------

TEST(PlacementGiven, NamesOfOrdersThereAndBack) {
  const std::vector<MeshOrder> orders = all_orders();
  ASSERT_EQ(orders.size(), 6u);
  EXPECT_EQ(orders.front(), kMeshOrder);
  for (const MeshOrder& order : orders) EXPECT_EQ(parse_order(to_string(order)), order);
  EXPECT_EQ(to_string(kMeshOrder), "tp,dp,pp");
  EXPECT_EQ(to_string(orders.back()), "pp,dp,tp");
  EXPECT_EQ(std::adjacent_find(orders.begin(), orders.end()), orders.end());
}

TEST(PlacementGiven, RefusesWhatIsNoOrder) {
  for (const char* text : {"", "tp,dp", "tp,dp,dp", "tp,dp,pp,cp", "tp, dp, pp", "cp,dp,pp"})
    EXPECT_EQ(message_of([&] { parse_order(text); }),
              fmt::format("order of a mesh: '{}', expected tp, dp and pp once each, as in "
                          "'tp,dp,pp'",
                          text));
}

TEST(PlacementGiven, RefusesAWorldThatTheShapeDoesNotFit) {
  const auto world = make_self_communicator();
  EXPECT_EQ(message_of([&] { placed(*world, {.tp = 2}, kMeshOrder); }),
            "mesh: dp 1 * pp 1 * cp 1 * tp 2 = 2, but there are 1 ranks");
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    EXPECT_EQ(message_of([&] { placed(rank.world, {.cp = 2}, kMeshOrder); }),
              "order of a mesh: cp 2 and ep 1, expected 1 of both");
  });
}

}  // namespace
}  // namespace aisc
