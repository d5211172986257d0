// The order of messages in the two trees, which is given, but made with the trees of an exercise.
#include <gtest/gtest.h>

#include <algorithm>

#include "09_collectives/double_tree.h"
#include "tests/comm/plan_runs.h"

namespace aisc::plan_runs {
namespace {

// What tree_edges promises: both ends of an edge see the same round, a rank hears from both
// children at once and before it sends, and turns differ where two messages meet.
TEST(TreeEdges, TakeTurnsAtBothEnds) {
  for (int size = 2; size <= 300; ++size) {
    const auto all = each_of(size, [&](int r) { return tree_edges(r, size); });
    for (int r = 0; r < size; ++r) {
      SCOPED_TRACE(testing::Message() << "rank " << r << " of " << size);
      const TreeEdges& mine = all[static_cast<std::size_t>(r)];
      ASSERT_LE(mine.up.size(), 2u);
      ASSERT_LE(mine.down.size(), 2u);
      for (std::size_t i = 0; i < mine.up.size(); ++i) {
        const TreeEdge& edge = mine.up[i];
        const auto& below = all[static_cast<std::size_t>(edge.peer)].down;
        const auto same = std::find_if(below.begin(), below.end(), [&](const TreeEdge& e) {
          return e.peer == r && e.tree == edge.tree;
        });
        ASSERT_NE(same, below.end());
        ASSERT_EQ(same->round, edge.round);
        ASSERT_LT(edge.round, log2_ceil(size));
        if (mine.up.size() == 2 && below.size() == 2) {
          ASSERT_EQ(i, static_cast<std::size_t>(same - below.begin())) << "to rank " << edge.peer;
        }
        for (const TreeEdge& e : mine.down)
          ASSERT_TRUE(e.tree != edge.tree || e.round < edge.round) << "to rank " << edge.peer;
      }
    }
  }
}

}  // namespace
}  // namespace aisc::plan_runs
