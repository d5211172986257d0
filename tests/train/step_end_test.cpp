// Which rank counts what several have, and the plain end of a step.
#include "common/train/step_end.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/message_of.h"
#include "tests/train/recorded_end.h"

namespace aisc {
namespace {

// Of the ranks that have the same elements the first in each direction counts them. A table on one
// stage is tied to nothing.
TEST(Counts, IsTrueOnOneOfTheRanksThatHaveTheSame) {
  for (const MeshShape& shape :
       {MeshShape{}, MeshShape{.dp = 2, .pp = 2, .tp = 2}, MeshShape{.dp = 3, .pp = 4, .tp = 2}})
    for (const int split_dim : {-1, 0, 1})
      for (const bool tied : {false, true})
        for (const bool sharded : {false, true}) {
          int counted = 0;
          for (int rank = 0; rank < shape.ranks(); ++rank) {
            const MeshPlace place = place_of(rank, shape);
            const bool first = place.pp == 0, last = place.pp == shape.pp - 1;
            if (tied ? !first && !last : place.pp != shape.pp / 2) continue;  // not here
            Parameter p;
            p.split_dim = split_dim;
            p.tied = !tied || shape.pp == 1 ? Tied::No : first ? Tied::First : Tied::Last;
            counted += counts(p, sharded, place) ? 1 : 0;
          }
          const int parts = (split_dim < 0 ? 1 : shape.tp) * (sharded ? shape.dp : 1);
          EXPECT_EQ(counted, parts)
              << fmt::format("dp {} pp {} tp {}, split {}, tied {}, shards {}", shape.dp, shape.pp,
                             shape.tp, split_dim, tied, sharded);
        }
}

// Of experts these are the ranks of the same place in ep; each part of ep and tp is counted.
TEST(Counts, OfExpertsIsTrueOnOneOfTheRanksThatHaveTheSame) {
  for (const MeshShape& shape :
       {MeshShape{.dp = 4, .ep = 2}, MeshShape{.dp = 6, .tp = 2, .ep = 3}, MeshShape{.dp = 3}})
    for (const bool sharded : {false, true}) {
      int counted = 0;
      for (int rank = 0; rank < shape.ranks(); ++rank) {
        Parameter p;
        p.split_dim = 0;
        p.sync = Sync::ExpertData;
        counted += counts(p, sharded, place_of(rank, shape)) ? 1 : 0;
      }
      EXPECT_EQ(counted, shape.tp * (sharded ? shape.dp : shape.ep));
    }
}

TEST(FinishInOrder, SumsThenNormThenUpdate) {
  RecordedEnd end(9, 16);
  EXPECT_EQ(finish_in_order(end, 1), 5);
  EXPECT_NEAR(end.scale, 0.2, 1e-6);
  EXPECT_THAT(end.calls,
              ::testing::ElementsAre("sum_over_data_ranks", "sum_tied_tables", "own_square",
                                     "sum_over_world", "update", "gather_weights"));
}

TEST(FinishInOrder, MovesNothingWhereTheNormIsNotFinite) {
  RecordedEnd end(std::numeric_limits<double>::quiet_NaN(), 16);
  EXPECT_EQ(message_of([&] { finish_in_order(end, 1); }), "the norm of the gradients is nan");
  EXPECT_EQ(end.calls.back(), "sum_over_world");
}

}  // namespace
}  // namespace aisc
