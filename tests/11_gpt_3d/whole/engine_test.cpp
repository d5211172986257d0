// The engine on ranks, with whatever flags or a file of DeepSpeed's ask for, takes the steps of one
// rank.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "11_gpt_3d/initialize.h"
#include "11_gpt_3d/step_of.h"
#include "common/comm/host_values.h"
#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/run_layout.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

using Words = std::vector<std::string>;

const Words kModel = {"--layers=2",   "--heads=2",       "--width=24", "--context=20",
                      "--batch=12",   "--precision=f64", "--steps=50", "--warmup=5",
                      "--dropout=.1", "--vocabulary=256"};

Words with(Words flags, const Words& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// The mean losses of the steps, over all ranks, and the loss of a batch that nobody trained on.
std::vector<double> run_engine(const Options& options, int steps) {
  std::vector<double> losses;
  const std::vector<std::uint8_t> text = some_text();
  launch(launch_options({.ranks = options.ranks}), [&](const Rank& rank) {
    const TrainConfig& config = options.train;
    const auto engine = initialize(rank, make_gpt(rank, config.model), options);
    const BatchSampler data(text, config.model.context, config.seed);
    const std::int64_t share = config.batch / options.ranks, part = share / config.micro_batches;
    std::vector<double> mine;
    for (std::int64_t i = 0; i < steps; ++i) {
      double loss = 0;
      for (std::int64_t m = 0; m < config.micro_batches; ++m) {
        const std::int64_t first = i * config.batch + rank.world.rank() * share + m * part;
        loss += engine->forward(data.batch(rank.device, first, part));
        engine->backward();
        engine->step();
      }
      mine.push_back(sum_of_all(rank.world, loss) /
                     static_cast<double>(config.micro_batches * options.ranks));
    }
    mine.push_back(engine->evaluate(data.batch(rank.device, 1'000'000, 3)));
    if (rank.world.rank() == 0) losses = mine;
  });
  return losses;
}

std::vector<double> run_trainer(const Options& options, int steps) {
  std::vector<double> losses;
  const std::vector<std::uint8_t> text = some_text();
  launch(launch_options({.ranks = 1}), [&](const Rank& rank) {
    Trainer trainer(rank, options.train, step_of(options));
    const BatchSampler data(text, options.train.model.context, options.train.seed);
    for (int i = 0; i < steps; ++i) losses.push_back(trainer.step(data).loss);
    const Batch window = data.batch(rank.device, 1'000'000, 3);
    losses.push_back(trainer.evaluate({&window, 1}));
  });
  return losses;
}

TEST(EngineOnRanks, TakesTheStepsOfOneTrainerWithAnyParts) {
  const int steps = 5;
  const std::vector<double> serial = run_trainer(engine_options(kModel, 1), steps);
  const std::vector<std::pair<int, Words>> layouts = {
      {1, {}},
      {2, {"--micro-batches=3"}},
      {3, {"--overlap=off", "--micro-batches=2"}},
      {2, {"--zero=1"}},
      {3, {"--zero=2", "--micro-batches=2"}},
      {2, {"--zero=3", "--prefetch=0", "--micro-batches=2"}},
      {4, {"--zero=3", "--persist=700"}},
      {4, {"--zero=2", "--zero-group=2", "--micro-batches=3"}},
      {2, {"--offload=optimizer"}},
      {2, {"--offload=weights", "--micro-batches=2"}},
      {3, {"--offload=activations"}}};
  for (const auto& [ranks, flags] : layouts) {
    const std::vector<double> found = run_engine(engine_options(with(kModel, flags), ranks), steps);
    ASSERT_EQ(found.size(), serial.size());
    for (std::size_t i = 0; i < serial.size(); ++i)
      EXPECT_NEAR(found[i], serial[i], 1e-10) << ranks << " " << testing::PrintToString(flags);
  }
}

TEST(EngineOnRanks, LossesAreScaledInside) {
  const Words half = with(kModel, {"--precision=f16", "--loss-scale-init=4096"});
  const std::vector<double> serial = run_trainer(engine_options(half, 1), 5);
  const std::vector<double> found = run_engine(engine_options(with(half, {"--zero=2"}), 2), 5);
  for (std::size_t i = 0; i < serial.size(); ++i) EXPECT_NEAR(found[i], serial[i], 5e-3);
  // A step that overflows moves nothing, and halves the scale.
  const Options options = engine_options(with(half, {"--loss-scale-init=1e30"}), 1);
  launch(launch_options({.ranks = 1}), [&](const Rank& rank) {
    const auto engine = initialize(rank, make_gpt(rank, options.train.model), options);
    const std::vector<std::uint8_t> text = some_text();
    const Batch batch = BatchSampler(text, 20, 1).batch(rank.device, 0, 12);
    const double before = engine->evaluate(batch);
    engine->forward(batch);
    engine->backward();
    EXPECT_FALSE(engine->step());
    EXPECT_EQ(engine->skipped(), 1);
    EXPECT_EQ(engine->loss_scale(), 5e29);
    EXPECT_EQ(engine->evaluate(batch), before);
  });
}

TEST(EngineOnRanks, AFileOfDeepSpeedsConfiguresIt) {
  const TemporaryFolder folder;
  write_file(folder.path("ds.json"), R"({"train_batch_size": 12, "gradient_accumulation_steps": 3,
    "zero_optimization": {"stage": 2}, "gradient_clipping": 0.5})");
  const Words model(kModel.begin(), kModel.end() - 6);  // up to the context
  const Words rest = {"--precision=f64", "--steps=50", "--warmup=5", "--vocabulary=256"};
  const Words file = with(with(model, rest), {"--deepspeed-config=" + folder.path("ds.json")});
  const Words flags = with(with(model, rest), {"--batch=12", "--clip=.5"});
  const std::vector<double> serial = run_trainer(engine_options(flags, 1), 4);
  const std::vector<double> found = run_engine(engine_options(file, 2), 4);
  for (std::size_t i = 0; i < serial.size(); ++i) EXPECT_NEAR(found[i], serial[i], 1e-10);
}

TEST(EngineOnRanks, RefusesFlagsOfAnotherLoop) {
  for (const Words& flags : {Words{"--accumulate=layered"}, Words{"--average-every=2"},
                             Words{"--ranks=2", "--tp=2"}, Words{"--precision=f8"}}) {
    const Options options = engine_options(with(kModel, flags), 1);
    EXPECT_TRUE(error_says(
        [&] {
          launch(launch_options({.ranks = options.ranks}), [&](const Rank& rank) {
            initialize(rank, make_gpt(rank, options.train.model), options);
          });
        },
        {"engine: found"}))
        << flags[0];
  }
}

}  // namespace
}  // namespace aisc
