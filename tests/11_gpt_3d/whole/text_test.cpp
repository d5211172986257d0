// Texts of models that no rank has whole: token by token what one rank writes with the same
// weights.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "app/generate.h"
#include "app/saved_model.h"
#include "app/saved_state.h"
#include "app/saved_weights.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/app/dealt_weights.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

using Tokens = std::vector<std::int32_t>;
using Texts = std::vector<Tokens>;

// The context is 11 tokens: a text that grows beyond it twice, and a prompt that is longer than it.
// Greedy and drawn, ended by a token that comes, and by the one that is not wanted any more.
Texts texts_of(const Rank& rank, const Model& model, const GptConfig& config,
               const TextRanks& ranks) {
  Texts texts;
  for (const Tokens& prompt : {Tokens{3, 1, 4}, Tokens(17, 5)})
    for (const double temperature : {0.0, 3.0}) {
      const GenerateOptions options{.tokens = 30, .temperature = temperature, .top_k = 9};
      texts.push_back(generate(
          rank, model, config, prompt, options, [](std::int32_t) { return true; }, ranks));
      EXPECT_EQ(texts.back().size(), 30u);
    }
  const Tokens drawn = texts.back();
  const GenerateOptions ends{
      .tokens = 30, .temperature = 3, .top_k = 9, .end_of_text = drawn.at(12)};
  texts.push_back(generate(
      rank, model, config, Tokens(17, 5), ends, [](std::int32_t) { return true; }, ranks));
  EXPECT_LE(texts.back().size(), 12u);
  // What rank 0 says counts, and the others are asked in vain.
  int seen = 0;
  const bool first = rank.world.rank() == 0;
  texts.push_back(generate(
      rank, model, config, Tokens{2}, {.tokens = 30},
      [&](std::int32_t) { return ++seen < (first ? 7 : 3); }, ranks));
  EXPECT_EQ(texts.back().size(), 7u);
  return texts;
}

// By one rank with the weights of a checkpoint.
Texts serial_texts(const std::string& checkpoint) {
  Texts texts;
  launch(launch_options({.ranks = 1}), [&](const Rank& rank) {
    const SavedModel saved(rank, checkpoint + "/model.safetensors", DType::F64);
    texts = texts_of(rank, saved.model, saved.config, {});
  });
  return texts;
}

class TextOfRanks : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(TextOfRanks, IsTheOneRanks) {
  const LayoutCase& c = GetParam();
  TrainConfig config = config_of(c);
  config.model.layers = 3;
  config.model.dropout = 0;
  config.learning_rate = 3e-2;
  const TemporaryFolder folder;
  std::vector<Texts> found(static_cast<std::size_t>(c.ranks()));
  std::string path;
  on_ranks(
      c.ranks(), config, [&] { return parts_of(c); },
      [&](const Rank& rank, Trainer& trainer) {
        take_steps(trainer, 3);
        const std::string saved = save(rank, folder.path(), trainer);
        const bool joins = trainer.reducer().joins_forward();
        const TextRanks ranks{.hooks = joins ? trainer.hooks() : Hooks(),
                              .mesh = trainer.mesh(),
                              .stages = trainer.stages()};
        Texts texts;
        if (takes_part(rank.world, ranks))
          texts = texts_of(rank, trainer.model(), config.model, ranks);
        take_steps(trainer, 1);  // a step goes on behind it
        if (rank.world.rank() == 0) path = saved;
        found[static_cast<std::size_t>(rank.world.rank())] = texts;
      });
  const Texts expected = serial_texts(path);
  int wrote = 0;
  for (std::size_t r = 0; r < found.size(); ++r) {
    if (found[r].empty()) continue;
    ++wrote;
    for (std::size_t i = 0; i + 1 < expected.size(); ++i)
      EXPECT_EQ(found[r].at(i), expected[i]) << "text " << i << " of rank " << r;
    EXPECT_EQ(found[r].back(), expected.back()) << "rank " << r;
  }
  EXPECT_EQ(wrote, c.pp * c.tp * c.cp * (c.zero == 3 ? c.dp : 1)) << "the others are not asked";
}

// And the saved model is read in parts.
class SavedTextOfRanks : public TextOfRanks {};

TEST_P(SavedTextOfRanks, IsTheOneRanks) {
  const LayoutCase& c = GetParam();
  TrainConfig config = config_of(DType::F64);
  config.model.layers = 3;
  config.model.heads = 24;
  config.model.width = 48;
  config.model.vocabulary = 250;  // 256 rows, padding with them, which 3 ranks do not divide
  const TemporaryFolder folder;
  const std::string path = saved_plain(folder.path(), config);
  const Texts expected = serial_texts(path);
  launch(launch_options({.ranks = c.ranks()}), [&](const Rank& rank) {
    SavedModel saved(rank, path + "/model.safetensors", DType::F64,
                     {.pp = c.pp, .tp = c.tp, .parts = parts_of(c)});
    std::int64_t held = 0;
    for (const Parameter* p : saved.parameters.parameters()) held += p->shape.count();
    EXPECT_LT(
        held,
        SavedModel(rank, path + "/model.safetensors", DType::F64).parameters.parameter_count())
        << "rank " << rank.world.rank() << " read all of it";
    EXPECT_EQ(texts_of(rank, saved.model, saved.config, saved.ranks()), expected)
        << "rank " << rank.world.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, SavedTextOfRanks,
                         ::testing::Values(LayoutCase{.tp = 2}, LayoutCase{.tp = 3},
                                           LayoutCase{.pp = 2, .schedule = "1f1b"},
                                           LayoutCase{.pp = 5, .schedule = "1f1b"},
                                           LayoutCase{.pp = 2, .tp = 3, .schedule = "1f1b"},
                                           LayoutCase{
                                               .pp = 2, .tp = 2, .schedule = "zb-v", .chunks = 2}));

INSTANTIATE_TEST_SUITE_P(
    Layouts, TextOfRanks,
    ::testing::Values(LayoutCase{.tp = 2}, LayoutCase{.tp = 3},
                      LayoutCase{.pp = 2, .schedule = "1f1b"},
                      LayoutCase{.pp = 5, .schedule = "gpipe"},
                      LayoutCase{.pp = 2, .schedule = "interleaved", .chunks = 2},
                      LayoutCase{.pp = 2, .schedule = "zb-v", .chunks = 2},
                      LayoutCase{.pp = 2, .schedule = "2bw", .clipped = false},
                      LayoutCase{.pp = 2, .tp = 2, .schedule = "1f1b"},
                      LayoutCase{.pp = 2, .tp = 3, .schedule = "zb-v", .chunks = 2},
                      LayoutCase{.dp = 2, .zero = 3}, LayoutCase{.dp = 2, .tp = 2},
                      LayoutCase{.dp = 2, .cp = 2}, LayoutCase{.stored = true, .cp = 3},
                      LayoutCase{.dp = 2, .tp = 2, .zero = 3, .stored = true, .cp = 2},
                      LayoutCase{.dp = 2, .pp = 2, .tp = 2, .schedule = "1f1b"},
                      LayoutCase{.dp = 2, .pp = 2, .tp = 2, .zero = 1, .schedule = "zb-h1"},
                      LayoutCase{.dp = 2, .pp = 2, .tp = 2, .zero = 3, .schedule = "1f1b"},
                      LayoutCase{
                          .dp = 2, .pp = 2, .zero = 3, .schedule = "interleaved", .chunks = 2}));

}  // namespace
}  // namespace aisc
