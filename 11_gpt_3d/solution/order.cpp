// Directions by their names, their orders, and a world that is numbered in one of them.
#include <fmt/format.h>

#include <algorithm>

#include "11_gpt_3d/placement.h"
#include "common/core/error.h"

namespace aisc {

namespace {

struct Direction {
  const char* name;
  int MeshShape::*degree;
  int MeshPlace::*coordinate;
};
const Direction& at(MeshDirection direction) {
  static constexpr Direction kDirections[] = {{"tp", &MeshShape::tp, &MeshPlace::tp},
                                              {"dp", &MeshShape::dp, &MeshPlace::dp},
                                              {"pp", &MeshShape::pp, &MeshPlace::pp}};
  return kDirections[static_cast<std::size_t>(direction)];
}

}  // namespace

std::string to_string(MeshDirection direction) { return at(direction).name; }

int degree(const MeshShape& shape, MeshDirection direction) { return shape.*at(direction).degree; }

int& coordinate(MeshPlace& place, MeshDirection direction) {
  return place.*at(direction).coordinate;
}

int coordinate(const MeshPlace& place, MeshDirection direction) {
  return place.*at(direction).coordinate;
}

std::vector<MeshOrder> all_orders() {
  std::vector<MeshOrder> orders;
  MeshOrder order = kMeshOrder;  // in the enumerators' order, with which permutations begin
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

std::string to_string(const MeshOrder& order) {
  return to_string(order[0]) + "," + to_string(order[1]) + "," + to_string(order[2]);
}

MeshOrder parse_order(const std::string& text) {
  for (const MeshOrder& order : all_orders())
    if (to_string(order) == text) return order;
  fail(fmt::format("order of a mesh: '{}', expected tp, dp and pp once each, as in '{}'", text,
                   to_string(kMeshOrder)));
}

std::unique_ptr<Communicator> placed(Communicator& world, const MeshShape& shape,
                                     const MeshOrder& order) {
  check_mesh(shape, world.size());
  if (shape.cp != 1 || shape.ep != 1)
    fail(fmt::format("order of a mesh: cp {} and ep {}, expected 1 of both", shape.cp, shape.ep));
  // By the number that Mesh gives to this rank's place.
  const int number = rank_of(place_of(world.rank(), shape, order), shape, kMeshOrder);
  return world.split(0, number, world.name());  // comm: numbers of ranks, once
}

}  // namespace aisc
