// Fine-tuning on every kind of layout: from the same pre-trained weights, of which each rank has
// what it updates, the losses, norms, gradients and weights of one rank, in F64; and the same
// judgement.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "12_encoders/fine_tuning.h"
#include "12_encoders/more/fine_tuned.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/12_encoders/some_labels.h"

namespace aisc {
namespace {

constexpr int kTuningSteps = 3;
constexpr std::int64_t kTunedLabels = 5;

TrainConfig tuning_config(const LayoutCase& c) {
  TrainConfig config = config_of(c);
  config.model.encoder_blocks = config.model.layers;
  return config;
}

// Of matrices and tables; biases, norms and the classifier stay as they are drawn.
bool pretrained_weights(const Parameter& parameter, View whole) {
  if (parameter.name.starts_with("classifier") || parameter.global_shape.rank() < 2) return false;
  CpuDevice host;
  host.copy(whole, random_tensor(parameter.global_shape, whole.dtype(), host, parameter.name, 0.1));
  return true;
}

// Trains on labels, whatever it is given.
struct LabelsTrainer {
  LabelsTrainer(const Rank& rank, const TrainConfig& config, const StepParts& parts)
      : trainer(rank, config, fine_tuned({.labels = kTunedLabels}, parts)),
        data(config.model.context, config.model.vocabulary, kTunedLabels, config.seed) {
    begin_from_pretrained(trainer, pretrained_weights);
  }
  StepReport step(const BatchSampler& /*text*/) {
    StepReport report = trainer.step(data);
    report.loss += 10 * report.extra;  // and what routers add
    return report;
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Trainer trainer;
  SomeLabels data;
};

const LayoutCase kTuningCases[] = {
    {.dp = 2, .micro = 1},
    {.dp = 2, .zero = 1},
    {.dp = 3, .zero = 2, .micro = 2},
    {.dp = 2, .zero = 3, .recompute = true, .micro = 2},
    {.dp = 3, .zero = 3, .owners = true},
    {.pp = 2, .schedule = "1f1b"},
    {.pp = 2, .schedule = "interleaved", .chunks = 2},
    {.pp = 2, .schedule = "zb-v", .chunks = 2},
    {.pp = 3, .schedule = "zb-h1", .virtual_time = true},
    {.pp = 4, .schedule = "1f1b", .layers = 2},  // the embedding is a stage, the head, too
    {.tp = 2, .micro = 1},
    {.tp = 3, .sequence = true, .micro = 2},
    {.cp = 2, .micro = 1},
    {.dp = 2, .ep = 2, .micro = 2},
    {.dp = 2, .pp = 2, .zero = 1, .schedule = "1f1b"},
    {.dp = 2, .pp = 2, .tp = 2, .zero = 2, .schedule = "1f1b", .sequence = true, .micro = 2}};

// What one rank leaves with such a configuration, made once.
const std::vector<RunRecord>& serial_tuning(const LayoutCase& c) {
  static std::map<std::string, std::vector<RunRecord>> runs;
  TrainConfig config = tuning_config(c);
  const std::string key =
      fmt::format("{} {} {} {} {}", config.model.layers, config.model.context, config.batch,
                  config.micro_batches, config.model.experts.count);
  config.pp = config.tp = config.cp = config.ep = 1;
  config.recompute = {};
  auto& run = runs[key];
  if (run.empty())
    run = run_layout<LabelsTrainer>({.ranks = 1}, config, kTuningSteps, parts_of_one(c));
  return run;
}

class FineTuningLayouts : public ::testing::TestWithParam<LayoutCase> {};
INSTANTIATE_TEST_SUITE_P(Fixed, FineTuningLayouts, ::testing::ValuesIn(kTuningCases));

TEST_P(FineTuningLayouts, LeaveWhatOneRankLeaves) {
  const LayoutCase& c = GetParam();
  const std::vector<RunRecord>& one = serial_tuning(c);
  EXPECT_GT(one.back().norms.back(), tuning_config(c).clip) << "gradients are clipped";
  EXPECT_TRUE(same_steps(
      one, run_layout<LabelsTrainer>({.ranks = c.ranks(), .virtual_time = c.virtual_time},
                                     tuning_config(c), kTuningSteps, parts_of(c))));
}

// Three windows of 1, 2 and 3 texts: of data ranks some have fewer than others, or none.
Judged judged_by(TrainConfig config, int ranks, const StepParts& parts) {
  Judged judged;
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    LabelsTrainer labels(rank, config, parts);
    labels.trainer.step(labels.data);
    std::vector<Batch> windows;
    const Communicator& data = labels.trainer.data_ranks();
    for (int w = data.rank(); w < 3; w += data.size())
      windows.push_back(labels.data.batch(rank.device, 5 * w, w + 1));
    const Judged found = judge(rank, labels.trainer, windows);
    if (rank.world.rank() == 0) judged = found;
  });
  return judged;
}

TEST(FineTuningOfRanks, IsJudgedAsThatOfOne) {
  for (const LayoutCase& c : kTuningCases) {
    if (c.dp == 2 && c.ranks() == 2 && c.zero == 0 && c.ep == 0) continue;
    TrainConfig config = tuning_config(c);
    const Judged found = judged_by(config, c.ranks(), parts_of(c));
    config.pp = config.tp = config.cp = config.ep = 1;
    const Judged one = judged_by(config, 1, parts_of_one(c));
    EXPECT_EQ(found.texts, 6) << c;
    EXPECT_EQ(found.right, one.right) << c;
    EXPECT_NEAR(found.loss, one.loss, 1e-12 * one.loss) << c;
  }
}

// The first stage's table is not summed with one that nobody has.
TEST(FineTuningOfRanks, HasNoTableOnTheLastStage) {
  const LayoutCase c{.pp = 2, .schedule = "1f1b"};
  launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
    const LabelsTrainer labels(rank, tuning_config(c), parts_of(c));
    int tables = 0;
    for (const Parameter* p : labels.trainer.parameters().parameters())
      if (p->name == "wte.weight") {
        ++tables;
        EXPECT_EQ(p->tied, Tied::No);
      }
    EXPECT_EQ(tables, rank.world.rank() == 0 ? 1 : 0);
  });
}

}  // namespace
}  // namespace aisc
