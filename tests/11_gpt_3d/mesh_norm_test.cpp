// The norm of a gradient in parts: by hand, and the serial norm of what 8 ranks count.
#include "11_gpt_3d/mesh_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/11_gpt_3d/counted_places.h"
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

// What the ranks of a mesh count, one after the other, added up.
double norm_of_all(const MeshShape& shape, const HeldBy& held_by, DType dtype) {
  CpuDevice device;
  double square = 0;
  for (const MeshPlace& place : counted_places(shape, kMeshOrder)) {
    const std::vector<Held> all = held_by(place);
    std::vector<Parameter> parameters(all.size());
    std::vector<OptimizerSlice> slices(all.size());
    std::vector<Tensor> tensors;
    bool sharded = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Held& h = all[i];
      parameters[i].split_dim = h.split_over_tp ? 0 : -1;
      parameters[i].tied = !h.tied ? Tied::No : place.pp == 0 ? Tied::First : Tied::Last;
      const Shape count{static_cast<std::int64_t>(h.values.size())};
      tensors.push_back(from_doubles(h.values, count, dtype, device));
      slices[i].gradient = tensors.back();
      tensors.push_back(Tensor::zeros(count, dtype, device));
      slices[i].weight = tensors.back();
      slices[i].parameter = &parameters[i];
      sharded = sharded || h.sharded;
    }
    square += own_square(slices, sharded, place);
  }
  return std::sqrt(square);
}

void expect_norm(const MeshShape& shape, const HeldBy& held_by, double expected,
                 const std::vector<Mistake>& mistakes = {}, DType dtype = DType::F64) {
  const double found = norm_of_all(shape, held_by, dtype);
  const auto is = [&](double norm) {
    return std::abs(found - norm) <= tolerance(dtype) * (1 + norm);
  };
  std::string cause = "each element counts on one rank, and squares are summed";
  for (const Mistake& mistake : mistakes)
    if (is(mistake.norm)) cause = mistake.why;
  EXPECT_TRUE(is(expected)) << text_of(shape) << ": the root of all ranks' own squares is " << found
                            << ", expected " << expected << ". Usual cause: " << cause;
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

TEST(MeshNorm, ARankThatHoldsNothingCountsNothing) {
  expect_norm(
      {.pp = 3},
      [](const MeshPlace& place) {
        return place.pp == 1 ? std::vector<Held>{{{3, 4}}} : std::vector<Held>{};
      },
      5);
  expect_norm(
      {.dp = 2}, [](const MeshPlace&) { return std::vector<Held>{}; }, 0);
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

TEST(MeshNorm, WhatIsNotFiniteIsSoInTheSum) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const HeldBy held = [&](const MeshPlace& place) {
      return std::vector<Held>{{{1, place.pp == 1 && place.tp == 1 ? bad : 2}, true}};
    };
    EXPECT_FALSE(std::isfinite(norm_of_all({.pp = 2, .tp = 2}, held, DType::F64)))
        << "an element of one rank is " << bad;
  }
}

}  // namespace
}  // namespace aisc
