// Yours to write; from 09_collectives/solution/double_tree.cpp (stub f614e06282f3).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Who is whose parent in the two trees, in which order messages pass their edges, and the sum that
// goes up in pieces and comes down again.
#include "09_collectives/double_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "common/core/error.h"

namespace aisc {

TreeNode first_tree(int rank, int size) {
  // LAB 09.10: two trees
  // The lowest set bit of r is r & -r. Who has r as its parent? Turn the two formulas round.
  throw NotImplemented("lab 09.10: two trees", __FILE__, __LINE__);
  // END LAB 09.10
}

TreeNode second_tree(int rank, int size) {
  // LAB 09.10: two trees
  // Where does this rank stand in the first tree, and which ranks stand where its parent and
  // children do? Mirrored children change their order; so may those that are counted round.
  throw NotImplemented("lab 09.10: two trees", __FILE__, __LINE__);
  // END LAB 09.10
}

namespace {

constexpr int kTrees = 2;

TreeNode node_in(int tree, int rank, int size) {
  return tree == 0 ? first_tree(rank, size) : second_tree(rank, size);
}

// Who stands in the first tree where `rank` stands in `tree`.
int place_in(int tree, int rank, int size) {
  if (tree == 0) return rank;
  return size % 2 == 0 ? size - 1 - rank : (rank + size - 1) % size;
}

int depth_of_trees(int size) { return std::bit_width(static_cast<unsigned>(size - 1)); }

// Below a place's left child there is a rank on every place, however many there are on the right.
int levels_below(int place, int size) {
  return place == 0 ? depth_of_trees(size) : std::countr_zero(static_cast<unsigned>(place));
}

// The turn of the edge up from an inner node: that of the node under the root, changed once for
// each step to one side on the way down from there. Steps to the other side leave it as it is, so
// that two children, one on each side, differ. To which side? Two leaves with the same parent must
// differ, too; their turns are those that the other tree leaves them. There they are inner nodes on
// places 4 i and 4 i + 2, whose numbers of steps to the right (set bits) differ by one, or on
// 4 i + 2 and 4 i + 4, where the steps to the left do so, but for an even number.
//
// The turn to begin with is one in which the deeper child of the node under the root, or of rank 0
// where that is an inner node of both trees, has turn 0, so that its sibling's message comes behind
// it: the longest way then has two messages wherever it can, and is as long for every n.
int turn_of_inner(int tree, int place, int size) {
  const bool is_odd = size % 2 == 1;
  const bool changes_to_the_left = is_odd ? tree == 0 : size % 4 == 2;
  int turn = changes_to_the_left ? 1 : 0;
  if (is_odd && tree == 1) turn = std::popcount(static_cast<unsigned>(size - 1)) - 1;
  // From the place up to the one under the root; each edge to the chosen side changes the turn
  // once.
  for (int level = 0; level < depth_of_trees(size); ++level) {
    const int up = first_tree(place, size).parent;
    if (up <= 0) break;
    if ((place < up) == changes_to_the_left) ++turn;
    place = up;
  }
  return turn % 2;
}

// Leaves take the turn that their edge in the other tree leaves them; who is the root there, and
// has no edge up, the turn that its sibling leaves.
int turn_of(int tree, int rank, int size) {
  const int place = place_in(tree, rank, size), other = place_in(1 - tree, rank, size);
  if (place % 2 == 0) return turn_of_inner(tree, place, size);
  if (other > 0) return 1 - turn_of_inner(1 - tree, other, size);
  for (const int sibling : node_in(tree, node_in(tree, rank, size).parent, size).children)
    if (sibling >= 0 && sibling != rank) return 1 - turn_of(tree, sibling, size);
  return 0;
}

}  // namespace

// Four ranks, L = 2. Edges from child to parent, each with its round and its turn:
//   first tree     3 -> 2: 0, 0    1 -> 2: 0, 1    2 -> 0: 1, 0
//   second tree    0 -> 1: 0, 0    2 -> 1: 0, 1    1 -> 3: 1, 0
// Rounds: in the first tree there is one level below place 2 and there are two below place 0.
// Turns: inner nodes under their roots, 2 and 1, begin with 0. As leaves, each in the other tree,
// they take the turn that is left, 1. Ranks 3 and 0 are leaves of one tree and roots of the other,
// so that their siblings leave them 0. Rank 2 has up = {to 0, to 1} and down = {3, 1}.
TreeEdges tree_edges(int rank, int size) {
  TreeEdges edges;
  const auto edge = [&](int tree, int peer, int parent) {
    const int place = place_in(tree, parent, size);
    return TreeEdge{.tree = tree, .peer = peer, .round = levels_below(place, size) - 1};
  };
  for (int turn = 0; turn < 2; ++turn)
    for (int tree = 0; tree < kTrees; ++tree) {
      const TreeNode node = node_in(tree, rank, size);
      if (node.parent >= 0 && turn_of(tree, rank, size) == turn)
        edges.up.push_back(edge(tree, node.parent, node.parent));
      for (const int child : node.children)
        if (child >= 0 && turn_of(tree, child, size) == turn)
          edges.down.push_back(edge(tree, child, rank));
    }
  return edges;
}

Plan double_tree_all_reduce(const Collective& c, int rank, int size, int segments) {
  // LAB 09.11: all_reduce on two trees
  // tree_edges says who sends to whom and when. Which segment passes an edge in a round, and what
  // if there is no such segment? Where do messages of two children go that arrive in one step?
  throw NotImplemented("lab 09.11: all_reduce on two trees", __FILE__, __LINE__);
  // END LAB 09.11
}

}  // namespace aisc
