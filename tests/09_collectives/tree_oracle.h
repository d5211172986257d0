// The two trees by another definition than their formulas: of a range of ranks the one with the
// most zero bits at its end is the root of a tree, whose left and right subtree are the ranks on
// its left and on its right. Rank 0 stands above the tree of ranks 1 .. n - 1.
#pragma once

#include <algorithm>
#include <bit>
#include <ostream>
#include <utility>
#include <vector>

#include "09_collectives/double_tree.h"

namespace aisc {

// For GoogleTest.
inline void PrintTo(const TreeNode& node, std::ostream* out) {
  *out << "parent " << node.parent << ", children " << node.children[0] << " and "
       << node.children[1];
}

}  // namespace aisc

namespace aisc::tree_oracle {

using Tree = std::vector<TreeNode>;  // by rank

inline TreeNode& at(Tree& tree, int rank) { return tree[static_cast<std::size_t>(rank)]; }
inline const TreeNode& at(const Tree& tree, int rank) {
  return tree[static_cast<std::size_t>(rank)];
}

// Of the ranks first .. last, below `parent`.
inline void plant(Tree& tree, int parent, int first, int last) {
  if (first > last) return;
  int root = first;
  for (int r = first; r <= last; ++r)
    if (std::countr_zero(unsigned(r)) > std::countr_zero(unsigned(root))) root = r;
  at(tree, root).parent = parent;
  auto& brothers = at(tree, parent).children;
  brothers[brothers[0] < 0 ? 0 : 1] = root;
  plant(tree, root, first, root - 1);
  plant(tree, root, root + 1, last);
}

inline Tree first_of(int size) {
  Tree tree(static_cast<std::size_t>(size));
  plant(tree, 0, 1, size - 1);
  return tree;
}

inline Tree second_of(int size) {
  const auto moved = [&](int r) {
    return r < 0 ? -1 : size % 2 == 0 ? size - 1 - r : (r + 1) % size;
  };
  const Tree first = first_of(size);
  Tree tree(first.size());
  for (int r = 0; r < size; ++r) {
    const auto [low, high] = at(first, r).children;
    TreeNode& node = at(tree, moved(r));
    node = {.parent = moved(at(first, r).parent), .children{moved(low), moved(high)}};
    if (high >= 0 && node.children[0] > node.children[1])
      std::swap(node.children[0], node.children[1]);
  }
  return tree;
}

inline int children_of(const TreeNode& node) {
  return static_cast<int>(2 - std::count(node.children.begin(), node.children.end(), -1));
}

}  // namespace aisc::tree_oracle
