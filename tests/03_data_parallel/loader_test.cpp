// Batches that are made while training runs.
#include "03_data_parallel/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "common/comm/launch.h"
#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(BoundedQueue, HoldsNoMoreThanItMay) {
  BoundedQueue<int> queue(2);
  std::atomic<int> pushed = 0;
  std::thread maker([&] {
    for (int i = 0; i < 5; ++i) {
      queue.push(i);
      ++pushed;
    }
    queue.close();
  });
  queue.wait_until_full();
  EXPECT_LE(pushed, 2);
  std::vector<int> taken;
  while (const auto value = queue.pop()) taken.push_back(*value);
  maker.join();
  EXPECT_THAT(taken, ElementsAre(0, 1, 2, 3, 4));
}

TEST(BoundedQueue, ClosedGivesUp) {
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.push(1));
  std::thread maker([&] { EXPECT_FALSE(queue.push(2)) << "it is full, and then closed"; });
  queue.close();
  maker.join();
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.stalls(), 0);
}

TEST(BoundedQueue, CountsHowOftenItWasEmpty) {
  BoundedQueue<int> queue(1);
  std::thread taker([&] { EXPECT_EQ(queue.pop(), 7); });
  while (queue.stalls() == 0) std::this_thread::yield();
  queue.push(7);
  taker.join();
  EXPECT_EQ(queue.stalls(), 1);
}

constexpr LoaderOptions kOptions{.batch = 7, .context = 11, .seed = 3, .steps = 6};

TEST(Loader, GivesWhatTheSamplerDraws) {
  const auto text = some_text();
  for (const std::size_t prefetch : {0, 1, 3})
    launch({.ranks = 3, .bind = false}, [&](const Rank& rank) {
      LoaderOptions options = kOptions;
      options.prefetch = prefetch;
      Loader loader(rank, text, options);
      const BatchSampler sampler(text, options.context, options.seed);
      const SampleRange mine = part_of({0, options.batch}, rank.world.rank(), 3);
      for (std::int64_t step = 0; step < options.steps; ++step) {
        const Batch expected =
            sampler.batch(rank.device, step * options.batch + mine.begin, mine.count());
        const Batch batch = loader.next();
        EXPECT_TRUE(same_bits(batch.tokens, expected.tokens)) << "step " << step;
        EXPECT_TRUE(same_bits(batch.targets, expected.targets)) << "step " << step;
      }
      EXPECT_THROW(loader.next(), Error);
    });
}

TEST(Loader, EndsBeforeItsBatchesAreTaken) {
  const auto text = some_text();
  launch({}, [&](const Rank& rank) { Loader(rank, text, kOptions).next(); });
}

// A GPT that a loader feeds. `each` is called before each step.
std::vector<double> train(const Rank& rank, TokenView text, const LoaderOptions& options,
                          const std::function<void(Loader&)>& each = {},
                          const std::function<void(Loader&)>& at_the_end = {}) {
  const GptConfig config = odd_config(DType::F64);
  const Model model = make_gpt(rank, config, gpt2_parts());
  ParameterStore store(rank.device, make_units(model),
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(1);
  AdamW adam(slices_of(store.parameters()), {});
  SumAtTheEnd sum(rank, store);
  Loader loader(rank, text, options);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    if (each) each(loader);
    losses.push_back(loaded_step(rank, {model, store, adam, sum}, loader, options, 1e-3));
  }
  if (at_the_end) at_the_end(loader);
  return losses;
}

TEST(Loader, TrainsAsTrainerDoes) {
  const auto text = some_text();
  std::vector<double> expected;
  launch({}, [&](const Rank& rank) {
    TrainConfig config;
    config.model = odd_config(DType::F64);
    config.gradient_dtype = DType::F64;
    config.batch = kOptions.batch;
    config.clip = 0;
    config.warmup_steps = 0;
    config.learning_rate = config.min_learning_rate = 1e-3;
    Trainer trainer(rank, config);
    const BatchSampler data(text, kOptions.context, kOptions.seed);
    for (std::int64_t i = 0; i < kOptions.steps; ++i) expected.push_back(trainer.step(data).loss);
  });
  launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
    const std::vector<double> losses = train(rank, text, kOptions);
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-10);
  });
}

TEST(Loader, EachPartOfAStepIsASpan) {
  const auto text = some_text();
  launch({.record_trace = true}, [&](const Rank& rank) {
    train(rank, text, kOptions);
    std::set<std::string> names;
    std::set<int> loader_lanes, training_lanes;
    for (const TraceEvent& event : rank.trace.events()) {
      const auto part = std::find(kPartsOfAStep.begin(), kPartsOfAStep.end(), event.name);
      if (part == kPartsOfAStep.end()) continue;
      names.insert(event.name);
      (part - kPartsOfAStep.begin() < 5 ? loader_lanes : training_lanes).insert(event.lane);
    }
    EXPECT_EQ(names, (std::set<std::string>(kPartsOfAStep.begin(), kPartsOfAStep.end())));
    EXPECT_EQ(loader_lanes.size(), 1U);
    EXPECT_EQ(training_lanes.size(), 1U);
    EXPECT_NE(loader_lanes, training_lanes) << "1-5 run in a thread of their own, beside 6-15";
  });
}

TEST(Loader, ThatIsAheadStallsNobody) {
  const auto text = some_text();
  launch({}, [&](const Rank& rank) {
    train(
        rank, text, kOptions, [](Loader& loader) { loader.wait_until_full(); },  // it is fast
        [](Loader& loader) { EXPECT_EQ(loader.stalls(), 0); });
  });
}

// Numbers of a machine with a loader of .25 and a step of 1: only the first step waits.
TEST(Stalls, AreNoneBehindTheFirstWhereLoadingIsFaster) {
  const std::vector<double> load(6, .25), step(6, 1);
  EXPECT_THAT(stalls(load, step, 2), ElementsAre(.25, 0, 0, 0, 0, 0));
  EXPECT_THAT(stalls(load, step, 0), Each(.25)) << "without a queue each step waits";
}

TEST(Stalls, AreTheDifferenceWhereLoadingIsSlower) {
  const std::vector<double> load(6, 1.5), step(6, 1);
  EXPECT_THAT(stalls(load, step, 1), ElementsAre(1.5, .5, .5, .5, .5, .5));
  EXPECT_THAT(stalls(load, step, 8), ElementsAre(1.5, .5, .5, .5, .5, .5))
      << "a longer queue does not help a loader that is too slow";
}

// One batch takes as long as four steps: as many batches ahead hide it.
TEST(Stalls, OfASlowBatchAreHiddenByTheQueue) {
  const std::vector<double> load{.25, .25, .25, .25, .25, 4, .25}, step(7, 1);
  EXPECT_EQ(stalls(load, step, 4)[5], 0);
  EXPECT_EQ(stalls(load, step, 1)[5], 2);
}

}  // namespace
}  // namespace aisc
