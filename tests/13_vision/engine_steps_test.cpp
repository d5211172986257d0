// A loop over an engine, and the file that configures it.
#include "13_vision/engine_steps.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "04_sharding/sharded_units.h"
#include "app/deepspeed_config.h"
#include "common/comm/host_values.h"
#include "common/core/system/files.h"
#include "tests/13_vision/small_images.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

nlohmann::json file_of(const EngineSettings& settings) {
  return nlohmann::json::parse(engine_file(settings));
}

// 12 images over 2 ranks with 3 micro-batches each: 2 at a time.
TEST(EngineFile, SaysHowABatchIsDivided) {
  const nlohmann::json file = file_of({.batch = 12, .micro_batches = 3, .ranks = 2, .zero = 2});
  EXPECT_EQ(file.value("train_batch_size", 0), 12) << "of a step: all ranks and micro-batches";
  EXPECT_EQ(file.value("gradient_accumulation_steps", 0), 3)
      << "a rank passes 3 micro-batches before the weights move";
  EXPECT_EQ(file.value("train_micro_batch_size_per_gpu", 0), 2) << "12 / 2 ranks / 3";
  EXPECT_EQ(file.value("/zero_optimization/stage"_json_pointer, -1), 2) << "the stage of ZeRO";
}

// DeepSpeed's rule, as our reader holds it.
TEST(EngineFile, IsReadAsItWasMeant) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/ds.json";
  const int ranks = static_cast<int>(drawn("ranks of EngineFile", 1, 4));
  const std::int64_t micro_batches = drawn("micro-batches of EngineFile", 1, 4),
                     images = drawn("images of EngineFile", 1, 5);
  const EngineSettings settings{.batch = images * micro_batches * ranks,
                                .micro_batches = micro_batches,
                                .ranks = ranks,
                                .zero = 3,
                                .steps = 70,
                                .warmup_steps = 7,
                                .learning_rate = 0.02};
  write_file(path, engine_file(settings));
  const DeepSpeedConfig config(path);
  Options options = gpt_options();
  options.ranks = ranks;
  config.complete(options, [](const std::string&) { return false; });
  EXPECT_EQ(options.train.batch, settings.batch);
  EXPECT_EQ(options.train.micro_batches, micro_batches);
  const std::vector<std::string>& flags = config.arguments();
  for (const std::string flag : {"--zero=3", "--steps=70", "--warmup=7", "--learning-rate=0.02"})
    EXPECT_NE(std::find(flags.begin(), flags.end(), flag), flags.end())
        << flag << " is not among " << fmt::format("{}", fmt::join(flags, " "));
}

TEST(GivenEngine, SaysWhatDoesNotDivideABatch) {
  for (const std::int64_t batch : {0, 7, 10})
    EXPECT_EQ(
        message_of([&] { engine_file({.batch = batch, .micro_batches = 3, .ranks = 2}); }),
        fmt::format("engine: a batch of {} over 2 ranks with 3 micro-batches each: expected a "
                    "multiple of 6",
                    batch));
}

TEST(GivenEngine, WantsAWarmUp) {
  EXPECT_EQ(message_of([] { engine_file({.warmup_steps = 0}); }),
            "engine: a warm-up of 0 steps, expected 1 or more");
}

TrainConfig small_config(const SmallSteps& s) {
  TrainConfig config;
  config.model.dtype = config.gradient_dtype = DType::F64;
  config.batch = s.images;
  config.micro_batches = s.micro_batches;
  config.steps = s.steps;
  config.warmup_steps = 0;
  config.learning_rate = config.min_learning_rate = kSmallRate;
  config.clip = 0;
  config.seed = 7;
  return config;
}

StepParts by_sgd(StepParts parts = {}) {
  parts.optimizer = [](const Rank&, Mesh*, ParameterStore&, std::vector<OptimizerSlice> slices,
                       const TrainConfig&) {
    return std::make_unique<Sgd>(std::move(slices), Sgd::Options{.momentum = kSmallMomentum});
  };
  return parts;
}

// Steps of engines of all ranks; which images are read is checked by what is learnt.
RunRecord engine_steps(int ranks, int zero, ImageNorm norm, const SmallSteps& s) {
  RunRecord record;
  std::mutex mutex;
  launch(late(ranks), [&](const Rank& rank) {
    Engine engine(rank, small_images_model(rank, norm, rank.world), small_config(s),
                  by_sgd(zero > 0 ? sharded({.stage = zero}) : StepParts{}));
    std::vector<double> losses;
    for (std::int64_t step = 0; step < s.steps; ++step) {
      const std::int64_t part = s.images / ranks / s.micro_batches;
      const double loss = engine_step(engine, s.micro_batches, [&](std::int64_t m) {
        return small_images(rank, step, (rank.world.rank() * s.micro_batches + m) * part, part);
      });
      losses.push_back(sum_of_all(rank.world, loss) / ranks);
      EXPECT_EQ(engine.steps(), step + 1) << "one step moves the weights once";
    }
    std::vector<OptimizerSlice> slices;
    for (const OptimizerSlice& slice : engine.optimizer().slices()) slices.push_back(slice);
    const RunRecord whole = gather_whole(rank, slices);
    const std::lock_guard lock(mutex);
    record = whole;
    record.losses = losses;
  });
  return record;
}

TEST(EngineStep, TakesTheStepsOfTheLoopThatIsWrittenOut) {
  const SmallSteps steps{.steps = 3, .images = 8};
  const RunRecord serial = serial_steps(ImageNorm::Layer, steps);
  for (const std::int64_t micro_batches : {1, 2, 4})
    EXPECT_TRUE(same_run(serial,
                         engine_steps(1, 0, ImageNorm::Layer, {3, steps.images, micro_batches}),
                         kSameRunF64))
        << micro_batches << " micro-batches";
}

TEST(EngineStep, DoesOnRanksAndInShards) {
  const SmallSteps steps{.steps = 3, .images = 8};
  const RunRecord serial = serial_steps(ImageNorm::Layer, steps);
  for (const int ranks : {2, 4})
    for (const int zero : {0, 1, 2, 3})
      EXPECT_TRUE(same_run(
          serial, engine_steps(ranks, zero, ImageNorm::Layer, {3, steps.images, 2}), kSameRunF64))
          << ranks << " ranks, ZeRO " << zero;
}

// The mean of four means, and the order in which micro-batches are read.
TEST(EngineStep, ReturnsTheMeanOfItsMicroBatches) {
  const SmallSteps s{.steps = 1, .images = 8, .micro_batches = 4};
  TestWorld world;
  Engine engine(world.rank, small_images_model(world.rank, ImageNorm::Layer, *world.comm),
                small_config(s), by_sgd());
  double expected = 0;
  for (std::int64_t m = 0; m < 4; ++m) {
    const ImageBatch batch = small_images(world.rank, 0, 2 * m, 2);
    expected += engine.evaluate(
                    {.tokens = batch.images.share(), .targets = batch.labels.share(), .terms = 2}) /
                4;
  }
  std::vector<std::int64_t> read;
  const double loss = engine_step(engine, 4, [&](std::int64_t m) {
    read.push_back(m);
    return small_images(world.rank, 0, 2 * m, 2);
  });
  EXPECT_NEAR(loss, expected, 1e-12);
  EXPECT_EQ(read, (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST(GivenEngine, SaysThatAStepIsUnderWay) {
  const SmallSteps s{.steps = 1, .images = 8, .micro_batches = 2};
  TestWorld world;
  Engine engine(world.rank, small_images_model(world.rank, ImageNorm::Layer, *world.comm),
                small_config(s), by_sgd());
  bool was_read = false;
  const auto read = [&](std::int64_t) {
    was_read = true;
    return small_images(world.rank, 0, 0, 4);
  };
  for (const std::int64_t number : {0, 1, 3})
    EXPECT_EQ(message_of([&] { engine_step(engine, number, read); }),
              fmt::format("engine: a step of {} micro-batches, expected 2, as it was configured",
                          number));
  const ImageBatch first = small_images(world.rank, 0, 0, 4);
  engine.forward({.tokens = first.images.share(), .targets = first.labels.share(), .terms = 4});
  engine.backward();
  engine.step();
  EXPECT_EQ(message_of([&] { engine_step(engine, 2, read); }),
            "engine: a step is under way: 1 of 2 micro-batches were taken, expected 0");
  EXPECT_FALSE(was_read);
}

}  // namespace
}  // namespace aisc
