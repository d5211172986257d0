// The norm of a gradient in parts: by hand, each element on one rank, and the serial norm on 8
// ranks that run.
#include "11_gpt_3d/mesh_norm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/11_gpt_3d/counted_places.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// What a rank holds of one tensor.
struct Held {
  std::vector<double> values;
  bool split_over_tp = false, tied = false, sharded = false;
};
using HeldBy = std::function<std::vector<Held>(const MeshPlace&)>;

// What somebody gets who made it.
struct Mistake {
  double norm;
  std::string why;
};

// F32 keeps 24 bits of each element; its squares are summed in F64.
double tolerance(DType dtype) { return dtype == DType::F32 ? 1e-6 : 1e-12; }

void expect_norm(const MeshShape& shape, const HeldBy& held_by, double expected,
                 const std::vector<Mistake>& mistakes = {}, DType dtype = DType::F64) {
  const std::vector<MeshPlace> places = counted_places(shape, kMeshOrder);
  const LaunchOptions options{.ranks = shape.ranks(),
                              .timeout_seconds = 10,
                              .bind = false,
                              .internals = {.decorate = make_late_comm}};
  launch(options, [&](const Rank& rank) {
    const MeshPlace& place = places[static_cast<std::size_t>(rank.world.rank())];
    std::vector<Tensor> tensors;
    std::vector<HeldGradient> held;
    for (const Held& h : held_by(place)) {
      tensors.push_back(
          from_doubles(h.values, {static_cast<std::int64_t>(h.values.size())}, dtype, rank.device));
      held.push_back({tensors.back(), h.split_over_tp, h.tied, h.sharded});
    }
    const double found = mesh_norm(held, place, rank.world);
    if (!std::isfinite(expected)) {
      EXPECT_FALSE(std::isfinite(found))
          << text_of(shape) << ", rank " << rank.world.rank() << ": the norm is " << found
          << ", though an element of another rank is not finite";
      return;
    }
    const auto is = [&](double norm) {
      return std::abs(found - norm) <= tolerance(dtype) * (1 + norm);
    };
    std::string cause = "each element counts on one rank, and squares are summed";
    for (const Mistake& mistake : mistakes)
      if (is(mistake.norm)) cause = mistake.why;
    EXPECT_TRUE(is(expected)) << text_of(shape) << ", rank " << rank.world.rank() << " ("
                              << text_of(place) << "): the norm is " << found << ", expected "
                              << expected << ". Usual cause: " << cause;
  });
}

// Tensor rank 0 has 3 of a matrix, rank 1 has 4, and both have 12 of a bias.
TEST(MeshNorm, TwoTensorRanksByHand) {
  const HeldBy held = [](const MeshPlace& place) {
    return std::vector<Held>{{{place.tp == 0 ? 3.0 : 4.0}, true}, {{12}, false}};
  };
  expect_norm({.tp = 2}, held, 13,
              {{std::sqrt(9 + 16 + 2 * 144), "the bias, which both ranks have, was counted twice"},
               {std::sqrt(9 + 144), "each rank of tp has another part of the matrix"},
               {std::sqrt(std::sqrt(153) + 4), "norms were summed, and not squares"},
               {std::sqrt(153) + 4, "norms were summed, and not squares"}});
}

// Both data-parallel ranks have 3 and 4; or, of shards, rank 0 has the 3 and rank 1 the 4.
TEST(MeshNorm, TwoDataParallelRanksByHand) {
  expect_norm({.dp = 2},
              [](const MeshPlace&) {
                return std::vector<Held>{{{3, 4}}};
              },
              5,
              {{std::sqrt(50), "all data-parallel ranks have the same sums: one of them counts"}});
  const HeldBy shards = [](const MeshPlace& place) {
    return std::vector<Held>{{{place.dp == 0 ? 3.0 : 4.0}, false, false, true}};
  };
  expect_norm({.dp = 2}, shards, 5,
              {{3, "of shards each data-parallel rank has another part, and all count"},
               {7, "norms were summed, and not squares"}});
}

// Stage 0 has the table, 6, and a matrix of 2; stage 1 one of 3; stage 2 the same table and 0.
TEST(MeshNorm, ThreeStagesWithATiedTableByHand) {
  const HeldBy held = [](const MeshPlace& place) {
    std::vector<Held> parts;
    if (place.pp != 1) parts.push_back({{6}, false, true});
    if (place.pp != 2) parts.push_back({{place.pp == 0 ? 2.0 : 3.0}});
    return parts;
  };
  expect_norm({.pp = 3}, held, 7,
              {{std::sqrt(36 + 36 + 4 + 9), "the tied table was counted on both of its stages"},
               {std::sqrt(4 + 9), "the tied table was counted on no stage"},
               {std::sqrt(36 + 4), "each stage has another part of the model, and counts it"}});
}

// On one stage the table is tied to itself.
TEST(MeshNorm, ATiedTableOnOneStageCounts) {
  expect_norm({.tp = 2},
              [](const MeshPlace&) {
                return std::vector<Held>{{{5}, false, true}};
              },
              5, {{0, "the only stage is the first and the last one"}});
}

TEST(MeshNorm, ARankThatHoldsNothingTakesPart) {
  expect_norm(
      {.pp = 3},
      [](const MeshPlace& place) {
        return place.pp == 1 ? std::vector<Held>{{{3, 4}}} : std::vector<Held>{};
      },
      5);
  expect_norm(
      {.dp = 2}, [](const MeshPlace&) { return std::vector<Held>{}; }, 0);
}

// Of ranks with the same elements one counts: the first in each direction.
TEST(MeshNorm, EachElementCountsOnOneRank) {
  const Tensor nothing;
  for (const MeshShape& shape : some_shapes())
    for (int kind = 0; kind < 8; ++kind) {
      const bool split = (kind & 1) != 0, tied = (kind & 2) != 0, sharded = (kind & 4) != 0;
      for (const MeshPlace& place : counted_places(shape, kMeshOrder)) {
        if (tied && place.pp != 0 && place.pp != shape.pp - 1) continue;
        const bool expected =
            !(!split && place.tp > 0) && !(!sharded && place.dp > 0) && !(tied && place.pp > 0);
        const HeldGradient held{{}, split, tied, sharded};
        ASSERT_EQ(counts(held, place), expected)
            << text_of(shape) << ", the rank at " << text_of(place) << ": a gradient that is "
            << (split ? "split" : "whole") << " over tp, " << (tied ? "tied, " : "")
            << (sharded ? "in shards" : "the same on all data-parallel ranks")
            << (expected ? ", counts here" : ", counts on a rank with lower indices");
      }
    }
}

// A model of which the ranks of dp 2, pp 2, tp 2 have parts. Element i of a tensor is a number of
// its own, whichever ranks have it.
struct Whole {
  std::string name;
  int stage;  // -1: on both
  std::int64_t count;
  bool split;
};

std::vector<double> whole_values(const Whole& whole) {
  std::vector<double> values;
  const Philox random(test_seed(), whole.name + " of the norm");
  for (std::int64_t i = 0; i < whole.count; ++i)
    values.push_back(random.normal(static_cast<std::uint64_t>(i)));
  return values;
}

// Part `part` of `parts` that differ by an element where the count does not divide.
std::vector<double> part_of(const std::vector<double>& all, int part, int parts) {
  const auto n = static_cast<std::ptrdiff_t>(all.size());
  return {all.begin() + n * part / parts, all.begin() + n * (part + 1) / parts};
}

TEST(MeshNorm, OfAMeshIsTheSerialNorm) {
  const MeshShape shape{.dp = 2, .pp = 2, .tp = 2};
  const auto size = [](const char* of) { return drawn(std::string("norm of ") + of, 1, 500); };
  const std::vector<Whole> model{
      {"table", -1, size("table"), true},      {"positions", 0, size("positions"), false},
      {"matrix 0", 0, size("matrix 0"), true}, {"bias 0", 0, size("bias 0"), false},
      {"matrix 1", 1, size("matrix 1"), true}, {"bias 1", 1, size("bias 1"), false}};
  double square = 0;
  for (const Whole& whole : model)
    for (const double x : whole_values(whole)) square += x * x;
  for (const bool sharded : {false, true})
    for (const DType dtype : {DType::F64, DType::F32})
      expect_norm(
          shape,
          [&](const MeshPlace& place) {
            std::vector<Held> held;
            for (const Whole& whole : model) {
              if (whole.stage >= 0 && whole.stage != place.pp) continue;
              std::vector<double> own = whole_values(whole);
              if (whole.split) own = part_of(own, place.tp, shape.tp);
              if (sharded) own = part_of(own, place.dp, shape.dp);
              held.push_back({own, whole.split, whole.stage < 0, sharded});
            }
            return held;
          },
          std::sqrt(square), {}, dtype);
}

TEST(MeshNorm, WhatIsNotFiniteOnOneRankIsSoOnAll) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    expect_norm(
        {.pp = 2, .tp = 2},
        [&](const MeshPlace& place) {
          return std::vector<Held>{{{1, place.pp == 1 && place.tp == 1 ? bad : 2}, true}};
        },
        bad);
}

TEST(MeshNorm, SumsOneNumberOnce) {
  launch({.ranks = 4, .bind = false}, [](const Rank& rank) {
    const Tensor a = from_doubles({1, 2}, {2}, DType::F32, rank.device), b = a.clone();
    const HeldGradient held[] = {{a, true}, {b, false}};
    mesh_norm(held, place_of(rank.world.rank(), {.dp = 2, .tp = 2}), rank.world);
    const CommStats stats = rank.world.stats();
    EXPECT_EQ(stats[CommOp::AllReduce].calls, 1) << "all-reduces; expected one for all gradients";
    EXPECT_EQ(stats[CommOp::AllReduce].payload_bytes, 8) << "bytes of it; expected one F64";
    std::int64_t calls = 0;
    for (const CommStats::Row& row : stats.rows) calls += row.calls;
    EXPECT_EQ(calls, 1) << "calls of the world's communicator, all operations";
  });
}

}  // namespace
}  // namespace aisc
