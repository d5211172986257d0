// Checkpoints of models with experts: the same to the byte on any layout, from which each other
// goes on; and text that ranks with some experts each write together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "app/generate.h"
#include "app/saved_model.h"
#include "app/weights_file.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/app/dealt_weights.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/toy_experts.h"

namespace aisc {
namespace {

struct SavedCase {
  LayoutCase layout = {};
  int ep = 1;
};

TrainConfig saved_config(const SavedCase& c, DType dtype) {
  TrainConfig config = config_of(c.layout);
  config.model.dtype = dtype;
  config.gradient_dtype = dtype == DType::BF16 ? DType::F32 : dtype;
  config.model.layers = 4;
  config.model.context = 24;  // which tensor ranks divide
  config.model.experts = {.count = 4, .router = "top2", .balance = 0.25, .shared = true};
  config.model.dropout = 0;
  config.batch = 12;
  config.ep = c.ep;
  return config;
}

void on_ranks_with(const SavedCase& c, DType dtype, const Body& body) {
  on_ranks(
      c.layout.ranks(), saved_config(c, dtype), [&] { return toy_experts(parts_of(c.layout)); },
      body);
}

class SavedExperts : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, SavedExperts, ::testing::Values(DType::F64, DType::BF16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(SavedExperts, AreTheSameFilesWhateverRanksWriteThem) {
  const SavedCase layouts[] = {{{.dp = 4, .zero = 3}, 2},
                               {{}},
                               {{.dp = 2}, 2},
                               {{.dp = 2, .tp = 2, .zero = 1}, 2},
                               {{.dp = 3}},
                               {{.pp = 2, .schedule = "1f1b"}},
                               {{.dp = 2, .pp = 2, .zero = 3, .schedule = "1f1b"}, 2},
                               {{.tp = 2, .sequence = true}},
                               {{.dp = 2, .zero = 2}},
                               {{.dp = 2, .zero = 1, .cp = 2}, 2},
                               {{.dp = 4}, 4}};
  const TemporaryFolder folder;
  std::string first, from;
  for (const SavedCase& c : layouts) {
    SCOPED_TRACE(fmt::format("{}, ep {}", ::testing::PrintToString(c.layout), c.ep));
    const std::string to = folder.path(std::to_string(&c - layouts));
    on_ranks_with(c, GetParam(), [&](const Rank& rank, Trainer& trainer) {
      if (first.empty())
        take_steps(trainer, 2);
      else
        restore_run(rank, read_checkpoint(from), trainer);
      save(rank, to, trainer);
    });
    from = to + "/step_000002";
    if (first.empty()) first = from;
    ASSERT_TRUE(same_files(first, from));
  }
}

// Not only the weights: what the optimizer knows of them, too.
TEST(SavedExperts, GoOnOnOtherRanksAsIfNothingHadHappened) {
  const SavedCase alone{}, shared{{.dp = 4, .tp = 2, .zero = 3}, 2};
  const TemporaryFolder folder;
  double expected = 0;
  const auto step = [](Trainer& trainer) {
    const std::vector<std::uint8_t> text = some_text();
    return trainer.step(BatchSampler(text, trainer.config().model.context, trainer.config().seed))
        .loss;
  };
  on_ranks_with(alone, DType::F64, [&](const Rank&, Trainer& trainer) {
    take_steps(trainer, 4);
    expected = step(trainer);
  });
  on_ranks_with(shared, DType::F64, [&](const Rank& rank, Trainer& trainer) {
    take_steps(trainer, 2);
    save(rank, folder.path(), trainer);
  });
  on_ranks_with(alone, DType::F64, [&](const Rank& rank, Trainer& trainer) {
    restore_run(rank, read_checkpoint(folder.path("step_000002")), trainer);
    take_steps(trainer, 1);
    save(rank, folder.path(), trainer);
  });
  on_ranks_with(shared, DType::F64, [&](const Rank& rank, Trainer& trainer) {
    restore_run(rank, read_checkpoint(folder.path("step_000003")), trainer);
    take_steps(trainer, 1);
    EXPECT_NEAR(step(trainer), expected, 1e-11);
  });
}

TEST(WeightsFiles, OfExpertsSayWhatTheyAre) {
  const TemporaryFolder folder;
  const SavedCase c{{.dp = 2}, 2};
  on_ranks_with(c, DType::F64,
                [&](const Rank& rank, Trainer& trainer) { save(rank, folder.path(), trainer); });
  const std::string path = folder.path("step_000000/model.safetensors");
  const Safetensors file(path);
  const GptConfig found = config_in(file), wrote = saved_config(c, DType::F64).model;
  EXPECT_EQ(found.layers, 4);
  EXPECT_EQ(found.heads, wrote.heads);
  EXPECT_EQ(found.vocabulary, 13);
  EXPECT_EQ(found.experts.count, 4);
  EXPECT_EQ(found.experts.every, 2);
  EXPECT_EQ(found.experts.router, "top2");
  EXPECT_EQ(found.experts.balance, 0.25);
  EXPECT_TRUE(found.experts.shared);
  EXPECT_EQ(file.at("blocks.1.mlp.experts.weight").shape, (std::vector<std::int64_t>{4, 3, 48}));
  EXPECT_EQ(file.at("wte.weight").shape, (std::vector<std::int64_t>{13, 48})) << "no padding";

  const std::string config_path = folder.path("step_000000/config.json");
  const std::string config = read_file(config_path);
  const auto said = [&](const std::string& before, const std::string& now,
                        const std::vector<std::string>& fragments) {
    std::string changed = config;
    const std::size_t at = changed.find(before);
    ASSERT_NE(at, std::string::npos) << before;
    write_file(config_path, changed.replace(at, before.size(), now));
    EXPECT_TRUE(error_says([&] { config_in(file); }, fragments));
  };
  said("\"n_head\"", "\"heads\"", {"config.json", "\"n_head\": found nothing, expected a number"});
  said("\"top2\"", "2", {"\"router\": found 2, expected a text"});
  said("\"shared\": true", "\"shared\": 1", {"\"shared\": found 1, expected true or false"});
  said("\"n_embd\": 48", "\"n_embd\": 24", {"wte.weight", "(13, 48)", "(13, 24)"});
  said("\"count\": 4", "\"count\": 1", {"experts are 1, expected 2 or more"});
}

TEST(SavedModels, OfExpertsGenerateOnOneRankAndOnMore) {
  const TemporaryFolder folder;
  const SavedCase c{{.dp = 2, .tp = 2}, 2};
  const std::vector<std::int32_t> prompt{1, 2, 3};
  const GenerateOptions options{.tokens = 12, .seed = 3};
  std::vector<std::int32_t> expected;
  on_ranks_with(c, DType::F64, [&](const Rank& rank, Trainer& trainer) {
    take_steps(trainer, 1);
    save(rank, folder.path(), trainer);
    const TextRanks all{.mesh = trainer.mesh()};
    EXPECT_TRUE(takes_part(rank.world, all)) << "each has experts that others lack";
    const auto text = generate(
        rank, trainer.model(), trainer.config().model, prompt, options,
        [](std::int32_t) { return true; }, all);
    if (rank.world.rank() == 0) expected = text;
  });
  ASSERT_EQ(expected.size(), 12u);
  const std::string path = folder.path("step_000001/model.safetensors");
  for (const auto& form : {std::pair{1, 1}, {1, 2}, {2, 1}})
    launch(launch_options({.ranks = form.first * form.second}), [&](Rank rank) {
      const auto [pp, tp] = form;
      LayoutCase parts{.pp = pp, .tp = tp, .schedule = "1f1b"};
      SavedModel saved(rank, path, DType::F64,
                       {.pp = pp, .tp = tp, .parts = toy_experts(parts_of(parts))});
      EXPECT_EQ(generate(
                    rank, saved.model, saved.config, prompt, options,
                    [](std::int32_t) { return true; }, saved.ranks()),
                expected)
          << "pp " << pp << " tp " << tp;
    });
  launch(launch_options({.ranks = 1}), [&](Rank rank) {
    EXPECT_TRUE(error_says([&] { SavedModel(rank, path, DType::F64); },
                           {"experts are 4", "no parts of a model with experts are given"}));
  });
}

}  // namespace
}  // namespace aisc
