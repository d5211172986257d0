#include "11_gpt_3d/placement.h"

namespace aisc {

int rank_of(const MeshPlace& place, const MeshShape& shape, const MeshOrder& order) {
  // LAB 11.1: mesh groups
  // > One more in the first direction of `order` is the next rank. How many ranks further is one
  // > more in the second, and in the third? coordinate(place, direction) and
  // > degree(shape, direction) are given.
  int rank = 0, stride = 1;
  for (const MeshDirection direction : order) {
    rank += stride * coordinate(place, direction);
    stride *= degree(shape, direction);
  }
  return rank;
  // END LAB 11.1
}

MeshPlace place_of(int rank, const MeshShape& shape, const MeshOrder& order) {
  // LAB 11.1: mesh groups
  // > The way back, from the first direction to the last. coordinate(place, direction) can be
  // > written to.
  MeshPlace place;
  for (const MeshDirection direction : order) {
    coordinate(place, direction) = rank % degree(shape, direction);
    rank /= degree(shape, direction);
  }
  return place;
  // END LAB 11.1
}

std::vector<std::vector<int>> groups_of(MeshDirection direction, const MeshShape& shape,
                                        const MeshOrder& order) {
  // LAB 11.1: mesh groups
  // > Which ranks are the first of a group? From such a rank's place, which are the others?
  std::vector<std::vector<int>> groups;
  for (int first = 0; first < shape.ranks(); ++first) {
    MeshPlace place = place_of(first, shape, order);
    if (coordinate(place, direction) != 0) continue;
    std::vector<int>& group = groups.emplace_back();
    for (int i = 0; i < degree(shape, direction); ++i) {
      coordinate(place, direction) = i;
      group.push_back(rank_of(place, shape, order));
    }
  }
  return groups;
  // END LAB 11.1
}

}  // namespace aisc
