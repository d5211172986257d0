// What runs beside what when weights come and gradients go, in virtual time, exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "04_sharding/sharded_units.h"
#include "common/comm/simulate.h"
#include "common/model/emulated_device.h"
#include "common/train/trainer.h"
#include "tests/support/exact_network.h"
#include "tests/support/run_layout.h"
#include "tests/support/toy_model.h"
#include "tests/support/trace_checks.h"

namespace aisc {
namespace {

constexpr int kRanks = 4;

// Seconds of a collective over so many F64 in all, which all ranks begin at once.
double seconds_of(CommOp op, std::int64_t count) {
  return simulate(default_plans()[op], call_of(op, kRanks, 8 * count), kRanks, exact::kFlat)
      .seconds;
}

// Three layers of a unit each.
struct Layers {
  std::array<std::int64_t, 3> counts;
  std::array<double, 3> forward, backward;  // seconds
};

// Forward as long as the layer says, and what was asked for when a layer begins to compute.
class Computing final : public LayerHook {
 public:
  Computing(const Rank& rank, const Layers& layers) : rank_(rank), layers_(layers) {}

  void before_forward(std::size_t layer, const Pass& /*pass*/) override {
    note();
    const auto span = rank_.trace.span("forward", "forward " + std::to_string(layer));
    rank_.clock.advance(layers_.forward[layer]);
  }
  void before_backward(std::size_t /*layer*/, const Pass& /*pass*/, Saved& /*saved*/) override {
    note();
  }
  std::vector<std::array<std::int64_t, 2>> asked;  // gathers, scatters; turn by turn

 private:
  void note() {
    const CommStats stats = rank_.world.stats();
    asked.push_back({stats[CommOp::AllGather].calls, stats[CommOp::ReduceScatter].calls});
  }

  const Rank rank_;
  const Layers layers_;
};

// A step of one micro-batch as rank 0 sees it, up to the last gradient.
struct Step {
  double seconds = 0;
  std::vector<TraceEvent> events;  // "forward 1", backward: "layer1", "all_gather(64 x F64)"
  std::vector<std::array<std::int64_t, 2>> asked;
  CommStats stats;

  std::int64_t count_of(const std::string& name) const {
    return std::count_if(events.begin(), events.end(),
                         [&](const TraceEvent& e) { return e.name == name; });
  }
};

Step run(const Layers& layers, const ShardOptions& options) {
  Step result;
  LaunchOptions launched{.ranks = kRanks, .network = exact::kFlat, .bind = false};
  launch(launched, [&](const Rank& rank) {
    std::vector<toy::Size> sizes;
    for (std::size_t i = 0; i < 3; ++i)
      sizes.push_back({.count = layers.counts[i], .backward = layers.backward[i]});
    toy::Toy toy(rank, sizes,
                 {.ranks = kRanks, .values = options.stage < 3, .gradients = options.stage < 2});
    ShardedUnits units(rank, toy.model, *toy.store, options);
    units.take_slices();
    const double begin = rank.clock.now();
    rank.trace.record(true);
    Computing computing(rank, layers);
    LayerHook* const hooks[] = {&units, &computing};
    units.begin();
    const Tensor tokens({1, 1}, DType::F64, rank.device);
    forward_backward(toy.model, tokens, tokens, {}, 1, hooks);
    units.finish();
    if (rank.world.rank() > 0) return;
    result = {rank.clock.now() - begin, rank.trace.events(), computing.asked, rank.world.stats()};
  });
  return result;
}

constexpr std::int64_t kCount = 1024;  // of each unit
const double kGather = seconds_of(CommOp::AllGather, kCount);
const double kScatter = seconds_of(CommOp::ReduceScatter, kCount);

Layers equal_layers(double forward, double backward) {
  return {{kCount, kCount, kCount}, {forward, forward, forward}, {backward, backward, backward}};
}
const double kLong = 4 * (kGather + kScatter), kShort = kGather / 4;

TEST(ShardedTime, IsTheLongerOfComputingAndCommunicatingWhereTheNextIsAhead) {
  EXPECT_EQ(run(equal_layers(kLong, 2 * kLong), {.stage = 3}).seconds,
            kGather + 3 * kLong + 3 * 2 * kLong + kScatter)
      << "all is hidden but the first gather and the last scatter";
  // Five gathers, since the last unit is there for its own backward, and three scatters, without a
  // gap but the last layer's forward: all gathers that it could run beside are over, and backward
  // has asked for none.
  EXPECT_EQ(run(equal_layers(kShort, kShort), {.stage = 3}).seconds,
            5 * kGather + kShort + 3 * kScatter);
}

TEST(ShardedTime, IsTheSumWhereNothingIsAhead) {
  // A layer's gather in backward waits behind the scatter of the layer above: nothing is hidden.
  for (const double seconds : {kLong, kShort})
    EXPECT_EQ(run(equal_layers(seconds, seconds), {.stage = 3, .gather = {.prefetch = 0}}).seconds,
              5 * kGather + 3 * kScatter + 6 * seconds);
}

TEST(ShardedTime, OfUnequalLayersIsTheLongerInEachTurn) {
  const double g = kGather, s = kScatter;
  const Layers layers{{kCount, kCount, kCount}, {g / 2, 4 * g, g / 4}, {8 * s, s / 2, 8 * g}};
  const auto& [counts, f, b] = layers;
  // Forward: gathers 0 and 1 from the start; gather 2 is asked for when layer 0 is over.
  double now = g + f[0];
  const double second = 2 * g, third = std::max(now, second) + g;
  now = std::max(now, second) + f[1];
  now = std::max(now, third) + f[2];
  // Backward: gather 1 beside layer 2; scatter 2 and gather 0 beside layer 1; scatter 1 beside 0.
  const double gathered1 = now + g;
  now += b[2];
  const double scattered2 = std::max(now, gathered1) + s, gathered0 = scattered2 + g;
  now = std::max(now, gathered1) + b[1];
  now = std::max(now, scattered2);  // one sum is under way at a time
  const double scattered1 = std::max(now, gathered0) + s;
  now = std::max(now, gathered0) + b[0];
  EXPECT_EQ(run(layers, {.stage = 3}).seconds, std::max(now, scattered1) + s);
}

TEST(ShardedTime, OfStages1And2HidesAllScattersButTheLast) {
  for (const int stage : {1, 2}) {
    EXPECT_EQ(run(equal_layers(kLong, kLong), {.stage = stage}).seconds, 6 * kLong + kScatter);
    EXPECT_EQ(run(equal_layers(kShort, kShort), {.stage = stage}).seconds,
              4 * kShort + 3 * kScatter);
  }
}

// Units of other lengths, so that their collectives have names of their own.
Layers named_layers() { return {{256, 512, 1024}, {kLong, kLong, kLong}, {kLong, kLong, kLong}}; }
constexpr const char* kGathers[] = {"all_gather(64 x F64)", "all_gather(128 x F64)",
                                    "all_gather(256 x F64)"};
constexpr const char* kScatters[] = {"reduce_scatter(64 x F64)", "reduce_scatter(128 x F64)",
                                     "reduce_scatter(256 x F64)"};

TEST(ShardedOrder, TheNextLayersWeightsComeWhileThisOneComputes) {
  const Step step = run(named_layers(), {.stage = 3});
  using Asked = std::vector<std::array<std::int64_t, 2>>;  // gathers, scatters
  EXPECT_EQ(step.asked, (Asked{{2, 0}, {3, 0}, {3, 0}, {4, 0}, {5, 1}, {5, 2}}))
      << "asked for before the layer computes";
  EXPECT_TRUE(overlapping(step.events, kGathers[1], "forward 0"));
  EXPECT_TRUE(overlapping(step.events, kGathers[2], "forward 1"));
  EXPECT_TRUE(overlapping(step.events, kGathers[1], "layer2")) << "backward";
  EXPECT_TRUE(overlapping(step.events, kGathers[0], "layer1")) << "backward";
  EXPECT_TRUE(in_order(step.events, {kGathers[0], "forward 0", "forward 1", "forward 2", "layer2",
                                     "layer1", "layer0", kScatters[0]}));
}

TEST(ShardedOrder, GradientsLeaveWhileTheLayerBelowComputes) {
  for (const int stage : {1, 2, 3}) {
    const Step step = run(named_layers(), {.stage = stage});
    EXPECT_TRUE(in_order(step.events, {"layer2", kScatters[2]}));
    EXPECT_TRUE(overlapping(step.events, kScatters[2], "layer1")) << "stage " << stage;
    EXPECT_TRUE(in_order(step.events, {"layer1", kScatters[1]}));
    EXPECT_TRUE(overlapping(step.events, kScatters[1], "layer0")) << "stage " << stage;
  }
}

TEST(ShardedOrder, WithoutPrefetchWeightsComeBetweenTheLayers) {
  const Step step = run(named_layers(), {.stage = 3, .gather = {.prefetch = 0}});
  for (const char* gather : kGathers)
    for (const char* layer : {"forward 0", "forward 1", "forward 2", "layer2", "layer1", "layer0"})
      EXPECT_FALSE(overlapping(step.events, gather, layer)) << gather << " beside " << layer;
  EXPECT_TRUE(
      in_order(step.events, {kGathers[0], "forward 0", kGathers[1], "forward 1", kGathers[2],
                             "forward 2", "layer2", kGathers[1], "layer1", kGathers[0], "layer0"}));
}

TEST(ShardedOrder, PrefetchOfTwoAsksForThreeAtOnce) {
  const Step step = run(named_layers(), {.stage = 3, .gather = {.prefetch = 2}});
  EXPECT_EQ(step.asked[0][0], 3);
  EXPECT_TRUE(overlapping(step.events, kGathers[2], "forward 0"));
}

TEST(ShardedOrder, LiveLeavesNoRoomForTheNext) {
  const Layers layers = equal_layers(kLong, kLong);
  const Step full = run(layers, {.stage = 3, .gather = {.prefetch = 1, .live = 2 * kCount - 1}});
  EXPECT_EQ(full.seconds, run(layers, {.stage = 3, .gather = {.prefetch = 0}}).seconds);
  const Step room = run(layers, {.stage = 3, .gather = {.prefetch = 1, .live = 2 * kCount}});
  EXPECT_EQ(room.seconds, run(layers, {.stage = 3}).seconds);
}

TEST(ShardedOrder, ReuseSparesBackwardItsGathers) {
  const GatherOptions kept{.prefetch = 0, .reuse = GatherOptions::kAll};
  const Step step = run(named_layers(), {.stage = 3, .gather = kept});
  for (const char* gather : kGathers) EXPECT_EQ(step.count_of(gather), 1) << gather;
  EXPECT_TRUE(in_order(step.events, {kGathers[2], "layer2", "layer1", "layer0"}));
  EXPECT_EQ(run(equal_layers(kLong, kLong), {.stage = 3, .gather = kept}).seconds,
            3 * kGather + 6 * kLong + kScatter);
  // Within 512 elements only unit 1 is used again: behind unit 2's 1024 it is not.
  const GatherOptions soon{.prefetch = 0, .reuse = 1023};
  EXPECT_EQ(run(named_layers(), {.stage = 3, .gather = soon}).count_of(kGathers[1]), 2);
  const GatherOptions later{.prefetch = 0, .reuse = 1024};
  EXPECT_EQ(run(named_layers(), {.stage = 3, .gather = later}).count_of(kGathers[1]), 1);
}

TEST(ShardedOrder, WhatPersistsIsThereBeforeTheStep) {
  const Step step = run(named_layers(), {.stage = 3, .gather = {.persist = 512}});
  EXPECT_EQ(step.count_of(kGathers[0]) + step.count_of(kGathers[1]), 0);
  EXPECT_EQ(step.count_of(kGathers[2]), 1);
  EXPECT_EQ(run(equal_layers(kLong, kLong), {.stage = 3, .gather = {.persist = kCount}}).seconds,
            6 * kLong + kScatter);
}

TEST(ShardedOrder, BucketsCutWhatIsSent) {
  constexpr std::int64_t kBucket = 256;  // 64 of each rank
  for (const int stage : {1, 2, 3}) {
    const Step step = run(named_layers(), {.stage = stage, .bucket = kBucket});
    EXPECT_EQ(step.count_of(kScatters[0]), 1 + 2 + 4) << "units of 256, 512 and 1024 elements";
    EXPECT_EQ(step.stats[CommOp::ReduceScatter].calls, 7) << "and no longer ones";
    EXPECT_EQ(step.stats[CommOp::ReduceScatter].payload_bytes, 8 * (256 + 512 + 1024));
  }
}

// A GPT on a machine: gathers run beside products with one layer ahead, and beside none without.
TEST(ShardedOrder, OfAGptHidesGathersBesideProducts) {
  const Machine machine = find_machine("dgx-a100");
  const std::vector<std::uint8_t> text = some_text();
  const auto hidden_gathers = [&](int prefetch) {
    TrainConfig config;
    config.model = {.layers = 4,
                    .heads = 8,
                    .width = 1024,
                    .context = 256,
                    .vocabulary = 1000,
                    .dtype = DType::BF16};
    config.batch = 2 * kRanks;
    std::int64_t gathers = 0;
    launch(on_machine(machine, kRanks, {.meta = true}), [&](const Rank& rank) {
      Trainer trainer(rank, config, sharded({.stage = 3, .gather = {.prefetch = prefetch}}));
      const BatchSampler data(text, config.model.context, config.seed);
      rank.trace.record(true);
      trainer.step(data);
      if (rank.world.rank() > 0) return;
      const std::vector<TraceEvent> events = rank.trace.events();
      for (const TraceEvent& gather : events)
        if (gather.name.starts_with("all_gather("))
          gathers += std::any_of(events.begin(), events.end(), [&](const TraceEvent& e) {
            return e.part == "product" && e.begin_seconds < gather.end_seconds &&
                   gather.begin_seconds < e.end_seconds;
          });
    });
    return gathers;
  };
  EXPECT_EQ(hidden_gathers(0), 0);
  // Three of four blocks in forward and, of backward, too.
  EXPECT_GE(hidden_gathers(1), 6);
}

}  // namespace
}  // namespace aisc
