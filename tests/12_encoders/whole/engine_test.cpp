// BERT under an engine, in a loop of one's own: the steps of a Trainer, whose samples have lengths
// and numbers of masked words that differ.
#include "common/train/engine.h"

#include <gtest/gtest.h>

#include <vector>

#include "04_sharding/sharded_units.h"
#include "12_encoders/bert.h"
#include "common/comm/host_values.h"
#include "tests/12_encoders/some_pairs.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

constexpr int kEngineSteps = 4;
constexpr BertOptions kEngineBert{.batch = 12, .predictions = 3};

TrainConfig engine_bert() {
  TrainConfig config;
  config.model = {
      .layers = 2, .heads = 2, .width = 16, .context = 12, .vocabulary = 30, .dtype = DType::F64};
  config.model.dropout = .1;
  config.model.encoder_blocks = 2;
  config.gradient_dtype = DType::F64;
  config.batch = kEngineBert.batch;
  config.micro_batches = 2;
  config.steps = 20;
  config.warmup_steps = 2;
  return config;
}

SomePairs pairs_of(const TrainConfig& config) {
  return {config.model.context, config.model.vocabulary, kEngineBert.predictions, config.seed};
}

TEST(EngineOfBert, TakesTheStepsOfATrainer) {
  const TrainConfig config = engine_bert();
  std::vector<double> serial;
  launch(launch_options({.ranks = 1}), [&](const Rank& rank) {
    Trainer trainer(rank, config, bert(kEngineBert));
    const SomePairs data = pairs_of(config);
    for (int i = 0; i < kEngineSteps; ++i) serial.push_back(trainer.step(data).loss);
  });
  for (const int ranks : {1, 2, 3})
    launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
      Engine engine(rank,
                    make_gpt(rank, config.model, bert_parts(kEngineBert, gpt2_parts(), nullptr)),
                    config, ranks == 1 ? StepParts() : sharded({.stage = ranks}));
      const SomePairs data = pairs_of(config);
      const std::int64_t share = config.batch / ranks, part = share / config.micro_batches;
      for (int i = 0; i < kEngineSteps; ++i) {
        const double terms = data.terms(i * config.batch, config.batch);
        double loss = 0;
        for (std::int64_t m = 0; m < config.micro_batches; ++m) {
          const std::int64_t first = i * config.batch + rank.world.rank() * share + m * part;
          loss += engine.forward(data.batch(rank.device, first, part), terms);
          engine.backward();
          engine.step();
        }
        loss = sum_of_all(rank.world, loss) / static_cast<double>(config.micro_batches * ranks);
        EXPECT_NEAR(loss, serial[static_cast<std::size_t>(i)], 1e-10) << ranks << " step " << i;
      }
    });
}

}  // namespace
}  // namespace aisc
