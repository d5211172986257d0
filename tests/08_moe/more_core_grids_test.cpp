// The grids of 16 cores are what the mesh's communicators say.
#include "08_moe/more/core_grids.h"

#include <gtest/gtest.h>

#include "common/comm/launch.h"

namespace aisc {
namespace {

TEST(CoreGrids, AreTheMeshsGroups) {
  for (const WayToDivide& way : five_ways())
    launch({.ranks = 16, .bind = false}, [&](const Rank& rank) {
      Mesh mesh(rank.world, way.mesh);
      const CoreParts parts = parts_of_core(rank.world.rank(), way.mesh);
      EXPECT_EQ(parts.weights, mesh.tp().rank()) << way.name;
      EXPECT_EQ(parts.experts, mesh.experts().rank()) << way.name;
      EXPECT_EQ(parts.data, mesh.dp().rank()) << way.name;
    });
}

TEST(CoreGrids, AreByHand) {
  EXPECT_EQ(core_grids(five_ways()[2]),
            "  weights                         data\n"
            "   0  1  2  3                      0  0  0  0\n"
            "   0  1  2  3                      1  1  1  1\n"
            "   0  1  2  3                      2  2  2  2\n"
            "   0  1  2  3                      3  3  3  3\n");
  EXPECT_EQ(core_grids(five_ways()[4]),
            "  weights         experts         data\n"
            "   0  1  2  3      0  1  2  3      0  0  0  0\n"
            "   0  1  2  3      4  5  6  7      1  1  1  1\n"
            "   0  1  2  3      8  9 10 11      2  2  2  2\n"
            "   0  1  2  3     12 13 14 15      3  3  3  3\n");
}

}  // namespace
}  // namespace aisc
