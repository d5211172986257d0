// Stages on several machines against all divisions that there are.
#include "05_pipeline/more/replicated_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Layers = std::vector<LayerProfile>;
using Stages = std::vector<ReplicatedStage>;

// The formulas once more, layer by layer.
double seconds_of(const Layers& layers, double bandwidth, const Stages& stages) {
  double most = 0;
  for (const ReplicatedStage& stage : stages) {
    const double m = stage.replicas;
    double compute = 0, weights = 0;
    for (std::int64_t l = stage.begin; l < stage.end; ++l) {
      compute += layers[static_cast<std::size_t>(l)].seconds;
      weights += 4 * (m - 1) * layers[static_cast<std::size_t>(l)].weight_bytes / m / bandwidth;
    }
    most = std::max({most, compute / m, weights / m});
    if (stage.end < std::ssize(layers))
      most = std::max(most,
                      2 * layers[static_cast<std::size_t>(stage.end - 1)].output_bytes / bandwidth);
  }
  return most;
}

// All divisions of the layers from the last stage's end on, over so many machines.
double least_of_all(const Layers& layers, double bandwidth, int machines, const Stages& stages) {
  const std::int64_t begin = stages.empty() ? 0 : stages.back().end, L = std::ssize(layers);
  if (begin == L)
    return machines == 0 ? seconds_of(layers, bandwidth, stages)
                         : std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t end = begin + 1; end <= L; ++end)
    for (int replicas = 1; replicas <= machines; ++replicas) {
      Stages more = stages;
      more.push_back({begin, end, replicas});
      least = std::min(least, least_of_all(layers, bandwidth, machines - replicas, more));
    }
  return least;
}

// 1: max(12, 4 * 2/3 * 3 / 10) / 3 = 4. The boundary: 2 * 5 / 10 = 1. 2: 3 + 1 = 4.
const Layers kLikeVgg{{.seconds = 6, .output_bytes = 40, .weight_bytes = 1},
                      {.seconds = 6, .output_bytes = 5, .weight_bytes = 2},
                      {.seconds = 3, .output_bytes = 1, .weight_bytes = 120},
                      {.seconds = 1, .output_bytes = 1, .weight_bytes = 40}};

TEST(ReplicatedSecondsGiven, ByHand) {
  const auto of = [](const Stages& stages) { return replicated_seconds(kLikeVgg, 10, stages); };
  EXPECT_DOUBLE_EQ(of({{0, 2, 3}, {2, 4, 1}}), 4);
  EXPECT_DOUBLE_EQ(of({{0, 4, 1}}), 16) << "one machine has no weights to exchange";
  EXPECT_DOUBLE_EQ(of({{0, 4, 4}}), 12.225) << "weights: 4 * 3/4 * 163 / 10 / 4";
  EXPECT_DOUBLE_EQ(of({{0, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 4, 1}}), 8)
      << "the first boundary: 2 * 40 / 10";
  EXPECT_DOUBLE_EQ(of({{0, 2, 2}, {2, 4, 2}}), 16) << "weights: 4 * 1/2 * 160 / 10 / 2";
}

TEST(ReplicatedCutGiven, ConvolutionsAreReplicatedAndTheirWeightyEndIsNot) {
  EXPECT_EQ(cut_with_replicas(kLikeVgg, 10, 4), (Stages{{0, 2, 3}, {2, 4, 1}}));
}

TEST(ReplicatedCutGiven, SmallWeightsAreDataParallel) {
  const Layers layers(5, {.seconds = 3, .output_bytes = 1000, .weight_bytes = 1});
  for (const int machines : {1, 2, 3, 7})
    EXPECT_EQ(cut_with_replicas(layers, 10, machines), (Stages{{0, 5, machines}}))
        << machines << " machines";
}

TEST(ReplicatedCutGiven, LargeWeightsAreAStraightPipeline) {
  const Layers layers(4, {.seconds = 3, .output_bytes = 1, .weight_bytes = 1000});
  EXPECT_EQ(cut_with_replicas(layers, 10, 4), (Stages{{0, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 4, 1}}));
  EXPECT_EQ(cut_with_replicas(layers, 10, 2), (Stages{{0, 2, 1}, {2, 4, 1}}));
}

TEST(ReplicatedCutGiven, IsTheBestOfAllDivisions) {
  for (int layers = 1; layers <= 12; ++layers)
    for (int machines = 1; machines <= 4; ++machines)
      for (int trial = 0; trial < 4; ++trial) {
        const std::string name = std::to_string(layers) + " layers on " + std::to_string(machines) +
                                 " machines, " + std::to_string(trial);
        const auto figure = [&](const std::string& what, std::int64_t most) {
          return static_cast<double>(drawn(name + what, 0, most));
        };
        const double bandwidth = 1 + figure(" bandwidth", 9);
        Layers all;
        for (int l = 0; l < layers; ++l) {
          const std::string layer = " of layer " + std::to_string(l);
          all.push_back({.seconds = figure("seconds" + layer, 20),
                         .output_bytes = figure("output" + layer, 60),
                         .weight_bytes = figure("weights" + layer, trial % 2 == 0 ? 20 : 80)});
        }
        const Stages found = cut_with_replicas(all, bandwidth, machines);
        int used = 0;
        for (const ReplicatedStage& stage : found) used += stage.replicas;
        EXPECT_EQ(used, machines) << name;
        EXPECT_DOUBLE_EQ(replicated_seconds(all, bandwidth, found),
                         seconds_of(all, bandwidth, found))
            << name;
        EXPECT_DOUBLE_EQ(seconds_of(all, bandwidth, found),
                         least_of_all(all, bandwidth, machines, {}))
            << name;
      }
}

TEST(ReplicatedCutGiven, RefusesWhatIsNoProfile) {
  const auto says = [](const Layers& layers, double bandwidth, int machines,
                       const std::string& message) {
    return error_says([&] { cut_with_replicas(layers, bandwidth, machines); }, {message});
  };
  constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(says({}, 10, 1, "profile: no layers, expected 1 or more"));
  EXPECT_TRUE(says(kLikeVgg, 10, 0, "0 machines, expected 1 or more"));
  EXPECT_TRUE(says(kLikeVgg, 0, 1, "0 bytes per second, expected more than 0"));
  EXPECT_TRUE(says(kLikeVgg, kNoNumber, 1, "bytes per second, expected more than 0"));
  EXPECT_TRUE(says({{}, {.seconds = -1}}, 1, 1, "layer 1 takes -1 seconds and has 0 output"));
  EXPECT_TRUE(says({{.output_bytes = -2}}, 1, 1, "has -2 output and 0 weight bytes"));
  EXPECT_TRUE(says({{.weight_bytes = kNoNumber}}, 1, 1, "expected 0 or more of each"));
}

TEST(ReplicatedSecondsGiven, RefusesWhatIsNoDivision) {
  const auto says = [](const Stages& stages, const std::string& message) {
    return error_says([&] { replicated_seconds(kLikeVgg, 10, stages); }, {message});
  };
  EXPECT_TRUE(says({{0, 2, 1}}, "stages of 2 layers, there are 4"));
  EXPECT_TRUE(says({{0, 2, 1}, {3, 4, 1}},
                   "layers 3 to 4 of 4 on 1 machines, expected one or "
                   "more from 2 on"));
  EXPECT_TRUE(says({{0, 0, 1}}, "layers 0 to 0 of 4"));
  EXPECT_TRUE(says({{0, 5, 1}}, "layers 0 to 5 of 4"));
  EXPECT_TRUE(says({{0, 4, 0}}, "on 0 machines"));
}

}  // namespace
}  // namespace aisc
