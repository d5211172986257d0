// All meshes for a GPT: by hand, and against trying every triple of degrees.
#include "11_gpt_3d/mesh_choices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

std::string said(const std::vector<MeshChoice>& all) {
  std::string text;
  for (const MeshChoice& c : all)
    text += fmt::format("{} {} {}, {}; ", c.dp, c.pp, c.tp, c.samples);
  return text;
}

constexpr const char* kMeshForm = ": all meshes, each as dp pp tp, samples of a micro-batch";

TEST(MeshChoices, OfFourRanksByHand) {
  EXPECT_EQ(
      said(mesh_choices({.ranks = 4, .layers = 2, .heads = 2, .batch = 4, .samples = {1, 4}})),
      "4 1 1, 1; 2 2 1, 1; 2 1 2, 1; 1 2 2, 1; 1 2 2, 4; ")
      << "4 ranks, 2 layers, 2 heads, a batch of 4, micro-batches of 1 or 4 samples" << kMeshForm;
}

// Three layers are no two stages, five heads no parts; a batch of 6 is no 4 shares.
TEST(MeshChoices, WhatDoesNotDivideIsNone) {
  EXPECT_EQ(said(mesh_choices({.ranks = 2, .layers = 3, .heads = 5, .batch = 2})), "2 1 1, 1; ")
      << "2 ranks, 3 layers, 5 heads, a batch of 2" << kMeshForm;
  EXPECT_EQ(said(mesh_choices({.ranks = 4, .layers = 3, .heads = 5, .batch = 6})), "")
      << "4 ranks, 3 layers, 5 heads, a batch of 6: there is no mesh";
  EXPECT_EQ(said(mesh_choices({.ranks = 1, .batch = 6, .samples = {4, 3, 2}})),
            "1 1 1, 3; 1 1 1, 2; ")
      << "1 rank, a batch of 6, micro-batches of 4, 3 or 2 samples" << kMeshForm;
}

TEST(MeshChoices, AreAllThatThereAre) {
  for (int run = 0; run < 60; ++run) {
    const auto size = [&](const char* what, std::int64_t most) {
      return drawn(fmt::format("mesh choices {} {}", run, what), 1, most);
    };
    const MeshQuestion q{.ranks = static_cast<int>(size("ranks", 24)),
                         .layers = size("layers", 12),
                         .heads = size("heads", 12),
                         .batch = size("batch", 48),
                         .samples = {1, 2, 3, 8}};
    std::vector<MeshChoice> expected;
    for (int tp = 1; tp <= q.ranks; ++tp)
      for (int pp = 1; pp <= q.ranks; ++pp)
        for (const std::int64_t samples : q.samples)
          for (int dp = 1; dp <= q.ranks; ++dp) {
            const std::int64_t share = q.batch / dp;
            if (dp * pp * tp == q.ranks && share * dp == q.batch &&
                share / samples * samples == share && q.heads / tp * tp == q.heads &&
                q.layers / pp * pp == q.layers)
              expected.push_back({dp, pp, tp, samples});
          }
    EXPECT_EQ(said(mesh_choices(q)), said(expected)) << fmt::format(
        "{} ranks, {} layers, {} heads, batch {}", q.ranks, q.layers, q.heads, q.batch);
  }
}

TEST(MeshChoicesGiven, NumbersBelowOneAreRefused) {
  EXPECT_TRUE(error_says([] { mesh_choices({.ranks = 0}); }, {"mesh_choices: found 0"}));
  EXPECT_TRUE(error_says([] { mesh_choices({.samples = {2, -1}}); }, {"found -1"}));
}

}  // namespace
}  // namespace aisc
