// Yours to write; from 11_gpt_3d/solution/placement.cpp (stub 664e9758c5a0).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "11_gpt_3d/placement.h"

#include "common/core/error.h"

namespace aisc {

int rank_of(const MeshPlace& place, const MeshShape& shape, const MeshOrder& order) {
  // LAB 11.1: mesh groups
  // One more in the first direction of `order` is the next rank. How many ranks further is one
  // more in the second, and in the third? coordinate(place, direction) and
  // degree(shape, direction) are given.
  throw NotImplemented("lab 11.1: mesh groups", __FILE__, __LINE__);
  // END LAB 11.1
}

MeshPlace place_of(int rank, const MeshShape& shape, const MeshOrder& order) {
  // LAB 11.1: mesh groups
  // The way back, from the first direction to the last. coordinate(place, direction) can be
  // written to.
  throw NotImplemented("lab 11.1: mesh groups", __FILE__, __LINE__);
  // END LAB 11.1
}

std::vector<std::vector<int>> groups_of(MeshDirection direction, const MeshShape& shape,
                                        const MeshOrder& order) {
  // LAB 11.1: mesh groups
  // Which ranks are the first of a group? From such a rank's place, which are the others?
  throw NotImplemented("lab 11.1: mesh groups", __FILE__, __LINE__);
  // END LAB 11.1
}

}  // namespace aisc
