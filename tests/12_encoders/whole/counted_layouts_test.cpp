// What is right of held-out samples, as programs count it: the same on every kind of layout.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "12_encoders/masked_words.h"
#include "12_encoders/more/bert_task.h"
#include "12_encoders/more/counted_loss.h"
#include "12_encoders/more/translation_task.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/12_encoders/some_pairs.h"

namespace aisc {
namespace {

using PartsOfProgram = StepParts (*)(const Options& options, StepParts parts);

// Six windows after three steps: of data ranks some have fewer than others.
std::vector<Hits> hits_on(const LayoutCase& c, const TrainConfig& config, int ranks,
                          StepParts parts, PartsOfProgram program, const SampleSource& data) {
  Options options;
  options.train = config;
  const StepParts all = program(options, std::move(parts));
  std::vector<Hits> hits;
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    Trainer trainer(rank, config, all);
    for (int i = 0; i < 3; ++i) trainer.step(data);
    std::vector<Batch> windows;
    for (int w = trainer.data_ranks().rank(); w < 6; w += trainer.data_ranks().size())
      windows.push_back(data.batch(rank.device, 50 + 5 * w, w % 3 + 1));
    const CountedEvaluation found = evaluate_counting(rank, trainer, windows, 2);
    EXPECT_GT(found.loss, 0) << c;
    if (rank.world.rank() == 0) hits = found.hits;
  });
  return hits;
}

void expect_same_hits(const LayoutCase& c, TrainConfig config, PartsOfProgram program,
                      const SampleSource& data) {
  const std::vector<Hits> found = hits_on(c, config, c.ranks(), parts_of(c), program, data);
  config.pp = config.tp = config.cp = config.ep = 1;
  const std::vector<Hits> one = hits_on(c, config, 1, parts_of_one(c), program, data);
  ASSERT_EQ(found.size(), 2u);
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(found[k].right, one[k].right) << c << ", kind " << k;
    EXPECT_EQ(found[k].of, one[k].of) << c << ", kind " << k;
    EXPECT_GT(one[k].of, 0);
  }
}

TEST(CountedPairs, AreTheSameOnAnyLayout) {
  for (const LayoutCase& c :
       {LayoutCase{.dp = 2, .zero = 3, .micro = 1}, LayoutCase{.dp = 3, .zero = 1, .micro = 1},
        LayoutCase{.pp = 2, .schedule = "1f1b"},
        LayoutCase{.pp = 2, .schedule = "interleaved", .chunks = 2},
        LayoutCase{.tp = 2, .micro = 1}, LayoutCase{.tp = 2, .sequence = true, .micro = 1},
        LayoutCase{.cp = 2, .micro = 1}, LayoutCase{.dp = 2, .ep = 2, .micro = 1},
        LayoutCase{.pp = 2, .tp = 2, .schedule = "1f1b"}}) {
    TrainConfig config = config_of(c);
    config.model.encoder_blocks = config.model.layers;
    expect_same_hits(c, config, bert_of,
                     SomePairs(config.model.context, config.model.vocabulary,
                               most_masked(config.model.context)));
  }
}

TEST(CountedLines, AreTheSameOnAnyLayout) {
  for (const LayoutCase& c :
       {LayoutCase{.dp = 2, .zero = 3, .micro = 1, .layers = 4},
        LayoutCase{.pp = 2, .schedule = "1f1b", .layers = 4},
        LayoutCase{.pp = 2, .schedule = "interleaved", .chunks = 2, .layers = 4},
        LayoutCase{.tp = 2, .micro = 1, .layers = 4},
        LayoutCase{.dp = 2, .pp = 2, .tp = 2, .schedule = "1f1b", .micro = 1, .layers = 4}}) {
    TrainConfig config = config_of(c);
    config.model.encoder_blocks = config.model.layers / 2;
    config.model.context = kToySource;
    config.model.vocabulary = ToyVocabulary().size();
    expect_same_hits(c, config, translation_of, TranslationSamples(3));
  }
}

// Greedy translation and the targets' own places say the same of a line.
TEST(CountedLines, AreThoseThatTheTranslatorWritesExactly) {
  TestWorld world;
  Options options;
  options.train = {.model = {.layers = 2,
                             .heads = 2,
                             .width = 32,
                             .context = kToySource,
                             .vocabulary = ToyVocabulary().size(),
                             .encoder_blocks = 1},
                   .batch = 32,
                   .steps = 250,
                   .learning_rate = 4e-3,
                   .warmup_steps = 20};
  Trainer trainer(world.rank, options.train, translation_of(options, {}));
  const TranslationTask task("");
  const auto training = task.training(options.train);
  for (int i = 0; i < 250; ++i) trainer.step(*training);
  const std::vector<ToyLine> lines = held_out_lines(60);
  std::vector<Batch> windows;
  windows.push_back(task.validation(options.train, 60)->batch(world.device, 0, 60));
  std::vector<std::vector<std::int32_t>> sources;
  for (const ToyLine& line : lines) sources.push_back(toy_source(line.english));
  const Translator translator(world.rank, trainer.model(), options.train.model, kToyTranslator);
  const auto texts = translator.translate_greedily(sources);
  std::int64_t exact = 0;
  for (std::size_t i = 0; i < lines.size(); ++i)
    exact += ToyVocabulary().decode(texts[i]) == lines[i].german ? 1 : 0;
  const Evaluation found = task.evaluate(world.rank, trainer, windows);
  EXPECT_EQ(found.right[1].second, static_cast<double>(exact) / 60);
  EXPECT_GT(exact, 0);
  EXPECT_LT(exact, 60) << "nothing is left to see";
}

}  // namespace
}  // namespace aisc
