// The choice of a pipeline: schedules by their names, and a Trainer with those that update while
// micro-batches are under way. What the synchronous ones leave: training_test.cpp.
#include "05_pipeline/pipelined.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "03_data_parallel/bucketed_reduction.h"
#include "05_pipeline/schedules.h"
#include "tests/support/error_says.h"
#include "tests/support/message_of.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

TEST(FindSchedule, MakesEachByItsName) {
  const auto same = [](const Schedule& found, const Schedule& expected) {
    EXPECT_EQ(found.name, expected.name);
    EXPECT_EQ(found.micro_batches, expected.micro_batches) << expected.name;
    EXPECT_EQ(found.stage_of, expected.stage_of) << expected.name;
    EXPECT_EQ(found.actions, expected.actions) << expected.name;
  };
  same(find_schedule({.schedule = "naive"}, 2, 4), naive(2, 4));
  same(find_schedule({.schedule = "gpipe"}, 2, 4), gpipe(2, 4));
  same(find_schedule({.schedule = "1f1b"}, 2, 4), one_f_one_b(2, 4));
  same(find_schedule({}, 2, 4), one_f_one_b(2, 4));
  same(find_schedule({.schedule = "interleaved", .chunks = 3}, 2, 4), interleaved(2, 3, 4));
  same(find_schedule({.schedule = "zb-h1"}, 2, 4), zb_h1(2, 4));
  same(find_schedule({.schedule = "zb-h2"}, 2, 4), zb_h2(2, 4));
  same(find_schedule({.schedule = "zb-v"}, 2, 4), zb_v(2, 4));
  same(find_schedule({.schedule = "zb-v", .chunks = 2}, 2, 4), zb_v(2, 4));
  same(find_schedule({.schedule = "pipedream"}, 2, 4), pipedream(2, 4));
  same(find_schedule({.schedule = "2bw"}, 2, 4), two_bw(2, 4, 1));
}

// The handout's first model, with GPT-2's vocabulary: the head takes as long as 1.9 blocks, and
// another share on another machine.
TEST(StagesOf, AreCutByWhatLayersTakeOnTheMachine) {
  const GptConfig config{
      .layers = 24, .heads = 16, .width = 2048, .context = 1024, .vocabulary = 50257};
  const auto blocks = [](const std::vector<BlockRange>& stages) {
    std::vector<std::int64_t> counts;
    for (const BlockRange& stage : stages) counts.push_back(stage.end - stage.begin);
    return counts;
  };
  EXPECT_EQ(blocks(stages_of(config, 4)), (std::vector<std::int64_t>{5, 7, 7, 5}));
  EXPECT_EQ(stages_of(config, 4, "limitless"), stages_of(config, 4));
  EXPECT_EQ(blocks(stages_of(config, 4, "dgx-2")), (std::vector<std::int64_t>{6, 6, 7, 5}));
  EXPECT_THROW(stages_of(config, 4, "no such machine"), Error);
}

TEST(StagesOf, HaveEmbeddingAndHeadAloneWhereThereAreMoreThanBlocks) {
  using Stages = std::vector<BlockRange>;
  const GptConfig small = odd_config();  // of 2 blocks, with 13 words: the ends are cheap
  EXPECT_EQ(stages_of(small, 2), (Stages{{0, 1}, {1, 2}}));
  EXPECT_EQ(stages_of(small, 4), (Stages{{0, 0},
                                         {.begin = 0, .end = 1, .embedding = false},
                                         {.begin = 1, .end = 2, .head = false},
                                         {2, 2}}));
  EXPECT_EQ(stages_of(small, 3).size(), 3u);
  GptConfig words = small;
  words.vocabulary = 5000;  // the head takes longer than all else: the ends alone, not the head's
  EXPECT_EQ(stages_of(words, 3).back(), (BlockRange{2, 2}));
  EXPECT_EQ(message_of([&] { stages_of(small, 5); }),
            "pipeline: 5 stages of 2 blocks, expected at most 4: each block, the embedding and the "
            "head may be a stage");
}

TEST(FindSchedule, RefusesOtherNamesAndChunks) {
  const auto error = [](const PipelineChoice& choice, int ranks = 2, int micro_batches = 4) {
    return message_of([&] { find_schedule(choice, ranks, micro_batches); });
  };
  EXPECT_EQ(error({.schedule = "1F1B"}),
            "pipeline: schedule \"1F1B\", expected naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, "
            "zb-v, pipedream or 2bw");
  EXPECT_EQ(error({.schedule = "gpipe", .chunks = 2}), "pipeline: gpipe with 2 chunks, expected 1");
  EXPECT_EQ(error({.schedule = "zb-v", .chunks = 3}), "pipeline: zb-v with 3 chunks, expected 2");
  EXPECT_EQ(error({.schedule = "pipedream", .chunks = 0}),
            "pipeline: pipedream with 0 chunks, expected 1");
  for (const int chunks : {0, 1})
    EXPECT_NE(error({.schedule = "interleaved", .chunks = chunks}), "") << chunks << " chunks";
  EXPECT_NE(error({.schedule = "interleaved", .chunks = 2}, 3, 4), "")
      << "4 is not a multiple of 3";
  EXPECT_NE(error({.schedule = "2bw"}, 3, 2), "") << "fewer micro-batches than stages";
  EXPECT_NE(error({.schedule = "1f1b"}, 2, 0), "") << "no micro-batches";
}

TrainConfig config_of_pipelined(int pp, std::int64_t micro_batches, double clip = 0) {
  TrainConfig c = odd_training(pp, 0, 2 * micro_batches, micro_batches, 4);
  c.clip = clip;
  return c;
}

void expect_serial(int ranks, const TrainConfig& config, int steps, const std::string& schedule,
                   const StepParts& parts = {}) {
  EXPECT_TRUE(same_steps(
      serial_steps(config, steps),
      run_layout({.ranks = ranks}, config, steps, pipelined({.schedule = schedule}, parts))))
      << config.pp << " stages";
}

// Nothing is under way when the only micro-batch of a run enters.
TEST(AsynchronousTrainer, PipeDreamOfOneMicroBatchIsTheSerialRun) {
  for (const int pp : {2, 3}) expect_serial(pp, config_of_pipelined(pp, 1), 3, "pipedream");
}

StepParts in_buckets() {
  return {.reducer = bucketed({.first_bytes = 64, .bytes = 3000, .overlap = true})};
}

// With data parallelism each update is by the mean over all pipelines.
TEST(AsynchronousTrainer, TwoPipelinesOfOneMicroBatchAreTheSerialRun) {
  for (const StepParts& parts : {StepParts{}, in_buckets()})
    expect_serial(4, config_of_pipelined(2, 1), 3, "pipedream", parts);
}

TEST(AsynchronousTrainer, TwoPipelinesBy2BWAreOne) {
  const auto of = [](int ranks, const StepParts& parts) {
    return run_layout({.ranks = ranks}, config_of_pipelined(2, 4), 3,
                      pipelined({.schedule = "2bw"}, parts));
  };
  const std::vector<RunRecord> one = of(2, {});
  EXPECT_TRUE(same_steps(one, of(4, {})));
  EXPECT_TRUE(same_steps(one, of(4, in_buckets())));
}

// Trains on samples that are all alike, so that they are in whichever micro-batch.
struct OfOneSample {
  OfOneSample(const Rank& rank, const TrainConfig& config, const StepParts& parts)
      : trainer(rank, config, parts) {}
  StepReport step(const BatchSampler& /*data*/) {
    const std::vector<std::uint8_t> text(index(trainer.config().model.context) + 1, 3);
    return trainer.step(BatchSampler(text, trainer.config().model.context, 1));
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Trainer trainer;
};

TEST(AsynchronousTrainer, TwoPipelinesByPipeDreamAreOne) {
  TrainConfig config = config_of_pipelined(2, 4);
  config.model.dropout = 0;
  for (const Weights weights : {Weights::Stashed, Weights::VerticalSync}) {
    const auto of = [&](int ranks, const StepParts& parts) {
      return run_layout<OfOneSample>(
          {.ranks = ranks}, config, 3,
          pipelined({.schedule = "pipedream", .weights = weights}, parts));
    };
    const std::vector<RunRecord> one = of(2, {});
    EXPECT_TRUE(same_steps(one, of(4, {})));
    EXPECT_TRUE(same_steps(one, of(4, in_buckets())));
  }
}

// The first batch has no version before it.
TEST(AsynchronousTrainer, The2BWsFirstStepIsTheSerialOne) {
  for (const int pp : {2, 3}) expect_serial(pp, config_of_pipelined(pp, 4), 1, "2bw");
}

// The three differ from the second micro-batch on.
TEST(AsynchronousTrainer, TakesTheWeightsThatAreChosen) {
  const auto loss = [](Weights weights) {
    return run_layout({.ranks = 3}, config_of_pipelined(3, 5), 2,
                      pipelined({.schedule = "pipedream", .weights = weights}))
        .back()
        .losses.back();
  };
  const double stashed = loss(Weights::Stashed), synced = loss(Weights::VerticalSync),
               newest = loss(Weights::Newest);
  EXPECT_NE(stashed, synced);
  EXPECT_NE(stashed, newest);
  EXPECT_NE(synced, newest);
}

// A norm of all stages would make them wait for each other; and 9 samples over two pipelines of 3
// micro-batches would be updates of 2, 3 and 4 samples.
TEST(AsynchronousTrainer, CannotClipAndNeedsMicroBatchesThatAreEquallyLarge) {
  const auto says = [](int ranks, const TrainConfig& config, const std::string& message) {
    return error_says(
        [&] { run_layout({.ranks = ranks}, config, 1, pipelined({.schedule = "pipedream"})); },
        {"pipeline: pipedream updates " + message});
  };
  TrainConfig config = config_of_pipelined(2, 3, 0.5);
  EXPECT_TRUE(says(2, config,
                   "a stage while others compute, and cannot clip by the norm of all: found clip "
                   "0.5, expected 0"));
  config = config_of_pipelined(2, 3);
  config.batch = 9;
  EXPECT_TRUE(says(4, config,
                   "by the mean over each micro-batch, which are equally large: found a batch of "
                   "9, expected a multiple of 6"));
}

// One update comes behind all micro-batches, so that 2BW can wait for the norm of all stages.
TEST(AsynchronousTrainer, The2BWClipsAsOneRankDoes) {
  expect_serial(3, config_of_pipelined(3, 4, 0.05), 1, "2bw");
}

TEST(AsynchronousTrainer, The2BWGoesOnWithTheNewestWeightsAlone) {
  const TrainConfig config = config_of_pipelined(2, 4);
  const std::vector<std::uint8_t> text = some_text();
  launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
    const BatchSampler data(text, config.model.context, config.seed);
    Trainer whole(rank, config, pipelined({.schedule = "2bw"}));
    whole.step(data);
    whole.step(data);
    const auto copied = [&](StepParts parts) {
      auto trainer = std::make_unique<Trainer>(rank, config, std::move(parts));
      const auto &from = whole.optimizer().slices(), &to = trainer->optimizer().slices();
      for (std::size_t i = 0; i < from.size(); ++i) rank.device.copy(to[i].weight, from[i].weight);
      const auto states = whole.optimizer().state(), mine = trainer->optimizer().state();
      for (std::size_t i = 0; i < states.size(); ++i)
        rank.device.copy(mine[i].value, states[i].value);
      trainer->resume(2, whole.samples_taken());
      return trainer;
    };
    const double newest = copied(pipelined({.schedule = "1f1b"}))->step(data).loss;
    const double again = copied(pipelined({.schedule = "2bw"}))->step(data).loss;
    EXPECT_NEAR(again, newest, 1e-12);
    EXPECT_GT(std::abs(whole.step(data).loss - newest), 1e-6);
  });
}

// Between two steps an evaluation sees the newest weights, and the versions stay.
TEST(AsynchronousTrainer, IsNotDisturbedByAnEvaluation) {
  const TrainConfig config = config_of_pipelined(2, 4);
  const std::vector<std::uint8_t> text = some_text();
  for (const char* schedule : {"2bw", "pipedream"})
    launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
      const BatchSampler data(text, config.model.context, config.seed);
      Trainer evaluated(rank, config, pipelined({.schedule = schedule}));
      Trainer other(rank, config, pipelined({.schedule = schedule}));
      for (int i = 0; i < 3; ++i) {
        std::vector<Batch> windows;
        windows.push_back(data.batch(rank.device, 0, 1));
        const double loss = evaluated.evaluate(windows);
        EXPECT_EQ(evaluated.evaluate(windows), loss);
        EXPECT_EQ(evaluated.step(data).loss, other.step(data).loss) << schedule;
      }
    });
}

}  // namespace
}  // namespace aisc
