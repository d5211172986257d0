// Encoder and decoder on every kind of layout: data, stages that are cut inside the encoder, at the
// bridge and inside the decoder, parts of layers, and several at once: losses, norms of gradients,
// gradients and weights of the serial run, in F64. Sources and translations have lengths that
// differ.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/12_encoders/some_translations.h"

namespace aisc {
namespace {

constexpr int kTranslationSteps = 3;

struct TranslationCase {
  LayoutCase layout;
  std::int64_t encoders = 2;  // of all blocks
  double smoothing = 0.1;
};
std::ostream& operator<<(std::ostream& out, const TranslationCase& c) {
  return out << c.layout << fmt::format(" encoders {} smoothing {}", c.encoders, c.smoothing);
}

TrainConfig translation_config(const TranslationCase& c) {
  TrainConfig config = config_of(c.layout);
  config.model.encoder_blocks = c.encoders;
  return config;
}

StepParts translation_parts(const TranslationCase& c, StepParts parts) {
  return encoder_decoder({.decoder_tokens = kSomeDecoderTokens, .smoothing = c.smoothing},
                         std::move(parts));
}

// Trains on translations, whatever it is given.
struct TranslationTrainer {
  TranslationTrainer(const Rank& rank, const TrainConfig& config, const StepParts& parts)
      : trainer(rank, config, parts),
        data(config.model.context, kSomeDecoderTokens, config.model.vocabulary, config.seed) {}
  StepReport step(const BatchSampler& /*text*/) {
    StepReport report = trainer.step(data);
    report.loss += 10 * report.extra;  // and what routers add
    return report;
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Trainer trainer;
  SomeTranslations data;
};

std::vector<RunRecord> translation_run(const TranslationCase& c) {
  return run_layout<TranslationTrainer>(
      {.ranks = c.layout.ranks(), .virtual_time = c.layout.virtual_time}, translation_config(c),
      kTranslationSteps, translation_parts(c, parts_of(c.layout)));
}

// What one rank leaves with such a configuration, made once.
const std::vector<RunRecord>& serial_translation(const TranslationCase& c) {
  static std::map<std::string, std::vector<RunRecord>> runs;
  TrainConfig config = translation_config(c);
  const std::string key = fmt::format("{} {} {} {} {} {} {} {}", config.model.layers, c.encoders,
                                      config.batch, config.micro_batches, config.clip, c.smoothing,
                                      config.model.experts.count, config.model.experts.router);
  config.pp = config.tp = config.ep = 1;
  config.recompute = {};
  auto& run = runs[key];
  if (run.empty())
    run = run_layout<TranslationTrainer>({.ranks = 1}, config, kTranslationSteps,
                                         translation_parts(c, parts_of_one(c.layout)));
  return run;
}

const TranslationCase kTranslationCases[] = {
    {{.dp = 2, .micro = 1, .layers = 4}},
    {{.dp = 3, .virtual_time = true, .micro = 2, .layers = 4}},
    {{.dp = 2, .zero = 1, .layers = 4}},
    {{.dp = 2, .zero = 2, .recompute = true, .layers = 4}},
    {{.dp = 2, .zero = 3, .micro = 2, .layers = 4}},
    {{.dp = 3, .zero = 3, .owners = true, .layers = 3}, 1},
    // Cuts behind block 2 of 4, by the number of encoders: inside the encoder, at the bridge,
    // behind the bridge's block, inside the decoder.
    {{.pp = 2, .schedule = "1f1b", .layers = 4}, 3},
    {{.pp = 2, .schedule = "gpipe", .layers = 4}, 2},
    {{.pp = 2, .schedule = "1f1b", .recompute = true, .layers = 4}, 1},
    {{.pp = 2, .schedule = "gpipe", .recompute = true, .layers = 4}, 1},
    {{.pp = 2, .schedule = "1f1b", .layers = 5}, 1},
    {{.pp = 3, .schedule = "1f1b", .layers = 6}, 3},
    {{.pp = 3, .schedule = "gpipe", .virtual_time = true, .layers = 6}, 1},
    // A rank has stages on both sides of another's, and one side input for both.
    {{.pp = 2, .schedule = "interleaved", .chunks = 2, .layers = 6}, 2},
    {{.pp = 2, .schedule = "interleaved", .chunks = 3, .recompute = true, .layers = 6}, 1},
    {{.pp = 2, .schedule = "zb-h1", .virtual_time = true, .layers = 4}, 1},
    {{.pp = 2, .schedule = "zb-v", .chunks = 2, .layers = 6}, 2},
    {{.pp = 4, .schedule = "1f1b", .layers = 2}, 1},  // the embedding is a stage, the head, too
    {{.tp = 2, .micro = 1, .layers = 4}},
    {{.tp = 3, .recompute = true, .micro = 2, .layers = 4}},
    {{.tp = 2, .micro = 1, .layers = 4}, 2, 0.0},  // with the vocabulary in parts
    {{.dp = 2, .tp = 2, .zero = 2, .micro = 2, .layers = 4}, 2, 0.0},
    {{.pp = 2, .tp = 2, .schedule = "1f1b", .layers = 4}, 1, 0.0},
    {{.tp = 2, .recompute = true, .activations = true, .layers = 4}},
    {{.dp = 2, .weights_away = true, .saved_away = true, .micro = 2, .layers = 4}},
    {{.dp = 2, .pp = 2, .schedule = "1f1b", .micro = 2, .layers = 4}, 1},
    {{.dp = 2, .pp = 2, .zero = 3, .schedule = "gpipe", .micro = 2, .layers = 4}, 1},
    {{.dp = 2, .pp = 2, .tp = 2, .zero = 1, .schedule = "1f1b", .micro = 2, .layers = 4}, 1},
    {{.dp = 2, .ep = 2, .micro = 2, .layers = 4}}};

TEST(TranslationStages, AreCutWhereTheRowsSay) {
  const auto begins = [](int layers, int stages) {
    const TranslationCase c{{.pp = stages, .schedule = "1f1b", .layers = layers}};
    std::vector<std::int64_t> all;
    for (const BlockRange& stage : stages_of(translation_config(c).model, stages))
      all.push_back(stage.begin);
    return all;
  };
  EXPECT_EQ(begins(4, 2), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(begins(6, 3), (std::vector<std::int64_t>{0, 2, 4}));
}

class TranslationLayouts : public ::testing::TestWithParam<TranslationCase> {};
INSTANTIATE_TEST_SUITE_P(Fixed, TranslationLayouts, ::testing::ValuesIn(kTranslationCases));

TEST_P(TranslationLayouts, LeaveWhatOneRankLeaves) {
  const TranslationCase& c = GetParam();
  const std::vector<RunRecord>& one = serial_translation(c);
  EXPECT_GT(one.back().norms.back(), translation_config(c).clip) << "gradients are clipped";
  EXPECT_TRUE(same_steps(one, translation_run(c)));
}

// Three windows, of unequal numbers of targets, after a step: some data ranks have fewer than
// others.
double evaluated_translation(const TrainConfig& config, int ranks, const StepParts& parts) {
  double loss = 0;
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    TranslationTrainer translations(rank, config, parts);
    Trainer& trainer = translations.trainer;
    trainer.step(translations.data);
    std::vector<Batch> windows;
    for (int w = trainer.data_ranks().rank(); w < 3; w += trainer.data_ranks().size())
      windows.push_back(translations.data.batch(rank.device, 5 * w, w + 1));
    const double found = trainer.evaluate(windows);
    if (rank.world.rank() == 0) loss = found;
  });
  return loss;
}

TEST(TranslationOfRanks, EvaluatesWhatOneRankEvaluates) {
  for (const TranslationCase& c : kTranslationCases) {
    const LayoutCase& l = c.layout;
    TrainConfig config = translation_config(c);
    const double found =
        evaluated_translation(config, l.ranks(), translation_parts(c, parts_of(l)));
    config.pp = config.tp = config.ep = 1;
    const double one = evaluated_translation(config, 1, translation_parts(c, parts_of_one(l)));
    EXPECT_NEAR(found, one, 1e-12 * one) << c;
  }
}

// The loss of an evaluation is not smoothed.
TEST(TranslationOfOneRank, IsSmoothedInTrainingAlone) {
  const TranslationCase smooth{{.micro = 1, .layers = 4}}, plain{smooth.layout, 2, 0.0};
  TrainConfig config = translation_config(smooth);
  config.learning_rate = config.min_learning_rate = 1e-300;  // nothing moves
  EXPECT_DOUBLE_EQ(evaluated_translation(config, 1, translation_parts(smooth, {})),
                   evaluated_translation(config, 1, translation_parts(plain, {})));
  EXPECT_NE(serial_translation(smooth)[0].losses[0], serial_translation(plain)[0].losses[0]);
}

TEST(TranslationOfRanks, RefusesTokensThatRanksShare) {
  for (LayoutCase l :
       {LayoutCase{.tp = 2, .sequence = true, .layers = 4}, LayoutCase{.cp = 2, .layers = 4}}) {
    const TranslationCase c{l};
    EXPECT_THROW(translation_run(c), Error) << c;
  }
}

}  // namespace
}  // namespace aisc
