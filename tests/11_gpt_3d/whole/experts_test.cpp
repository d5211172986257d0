// Experts beside stages, parts of layers, shared sequences and every stage of ZeRO: the serial run,
// with the norm that Trainer makes and with that of this module.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "03_data_parallel/layered.h"
#include "11_gpt_3d/mesh_norm.h"
#include "11_gpt_3d/step_order.h"
#include "app/plan.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/train/toy_experts.h"

namespace aisc {
namespace {

struct ExpertsCase {
  LayoutCase layout = {};
  int ep = 1;
  std::int64_t every = 1;
  bool layered = false;
  Again again = Again::Never;  // stages run forward once more
};
std::ostream& operator<<(std::ostream& out, const ExpertsCase& c) {
  return out << c.layout << " ep " << c.ep << " every " << c.every << (c.layered ? " layered" : "")
             << (c.again == Again::Never ? "" : " again");
}

const ExpertsCase kExpertsCases[] = {
    {{.dp = 2}, 2},
    {{.dp = 4, .virtual_time = true}, 2},
    {{.dp = 2, .zero = 1}, 1},
    {{.dp = 4, .zero = 1}, 2},
    {{.dp = 4, .zero = 2, .recompute = true}, 2},
    {{.dp = 4, .zero = 3}, 2},
    {{.dp = 2, .zero = 3}, 2},
    {{.dp = 2, .zero = 3, .owners = true}, 1},
    {{.dp = 4, .zero = 3, .owners = true}, 2},
    {{.tp = 2}},
    {{.dp = 2, .tp = 2}, 2},
    {{.dp = 2, .tp = 2, .recompute = true, .sequence = true}, 2},
    {{.dp = 4, .tp = 2, .zero = 1, .sequence = true}, 2},
    {{.dp = 2, .tp = 2, .zero = 3, .recompute = true, .activations = true}, 2},
    {{.pp = 2, .schedule = "gpipe"}},
    {{.dp = 2, .pp = 2, .schedule = "1f1b"}, 2},
    {{.dp = 2, .pp = 2, .zero = 3, .schedule = "1f1b"}, 2},
    {{.dp = 2, .pp = 2, .zero = 1, .schedule = "zb-h1"}, 2},
    {{.dp = 2, .pp = 2, .schedule = "zb-h2"}, 2},
    {{.dp = 2, .pp = 2, .schedule = "zb-v", .chunks = 2}, 2},
    {{.dp = 2, .pp = 2, .schedule = "interleaved", .chunks = 2}, 2},
    {{.dp = 2, .pp = 4, .schedule = "1f1b", .layers = 4}, 2, 2},  // stages without experts
    {{.dp = 2, .pp = 2, .tp = 2, .zero = 1, .schedule = "1f1b", .recompute = true}, 2, 2},
    {{.dp = 2, .pp = 2, .schedule = "1f1b"}, 2, 1, false, Again::OnArrival},
    {{.dp = 2, .pp = 2, .schedule = "1f1b"}, 2, 1, false, Again::Early},
    {{.dp = 2, .cp = 2}, 2},
    {{.dp = 2, .zero = 2, .cp = 2}, 2},
    {{.dp = 4, .layers = 4}, 4, 2, true}};

class ExpertsOnMeshes : public ::testing::TestWithParam<ExpertsCase> {};
INSTANTIATE_TEST_SUITE_P(Fixed, ExpertsOnMeshes, ::testing::ValuesIn(kExpertsCases));

// Cross entropy and, tenfold, what layers add.
struct BothLossesOf {
  BothLossesOf(const Rank& rank, const TrainConfig& config, const StepParts& parts)
      : trainer(rank, config, parts) {}
  StepReport step(const BatchSampler& data) {
    StepReport report = trainer.step(data);
    report.loss += 10 * report.extra;
    return report;
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Trainer trainer;
};

// What one rank leaves, made once.
const std::vector<RunRecord>& alone_of(TrainConfig config, int steps) {
  static std::map<std::vector<std::int64_t>, std::vector<RunRecord>> runs;
  config.pp = config.tp = config.cp = config.ep = 1;
  config.recompute = {};
  const GptConfig& model = config.model;
  auto& run =
      runs[{model.layers, model.context, model.experts.every, config.batch, config.micro_batches}];
  if (run.empty()) run = run_layout<BothLossesOf>({.ranks = 1}, config, steps, toy_experts());
  return run;
}

TEST_P(ExpertsOnMeshes, LeaveWhatOneRankLeaves) {
  const ExpertsCase& c = GetParam();
  constexpr int kSteps = 3;
  TrainConfig config = config_of(c.layout);
  config.model.experts = {.count = 8, .every = c.every};
  config.ep = c.ep;
  const std::vector<RunRecord>& one = alone_of(config, kSteps);
  StepParts parts = toy_experts(parts_of(c.layout));
  if (c.layered) parts.loop = layered;
  if (c.again != Again::Never)
    parts = pipelined({.schedule = c.layout.schedule, .again = c.again}, std::move(parts));
  const RankLayout ranks{.ranks = c.layout.ranks(), .virtual_time = c.layout.virtual_time};
  EXPECT_TRUE(same_steps(one, run_layout<BothLossesOf>(ranks, config, kSteps, parts)));
  if (!config.has_mesh()) return;
  parts.finish = finish_step;
  parts.own_square = own_square;
  EXPECT_TRUE(same_steps(one, run_layout<BothLossesOf>(ranks, config, kSteps, parts)))
      << "with the norm over a mesh";
}

// What --plan says is what a rank then holds and sends.
TEST(PlansOfExperts, AreWhatRanksMeasure) {
  for (const ExpertsCase& c :
       {ExpertsCase{{.dp = 4, .zero = 1}, 2}, {{.dp = 2, .tp = 2, .zero = 3}, 2}}) {
    TrainConfig config = config_of(c.layout);
    config.model.experts = {.count = 8, .every = c.every};
    config.ep = c.ep;
    config.batch = 24;
    const StepParts parts = toy_experts(parts_of(c.layout));
    const StepBooks planned = plan_step(config, c.layout.ranks(), parts).books;
    StepBooks measured;
    const std::vector<std::uint8_t> text = some_text();
    launch(launch_options({.ranks = c.layout.ranks()}), [&](Rank rank) {
      Trainer trainer(rank, config, parts);
      const BatchSampler data(text, config.model.context, config.seed);
      trainer.step(data);
      rank.device.reset_peaks();
      const SentMeter meter(rank, trainer);
      trainer.step(data);
      if (rank.world.rank() == 0) measured = {rank.device.ledger(), meter.read()};
    });
    for (const Purpose p : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer})
      EXPECT_EQ(planned.ledger[p].live_bytes, measured.ledger[p].live_bytes) << name_of(p);
    EXPECT_EQ(planned.sent.data, measured.sent.data);
    EXPECT_EQ(planned.sent.experts, measured.sent.experts);
    EXPECT_EQ(planned.sent.all(), measured.sent.all());
    EXPECT_GT(planned.sent.experts, 0);
    const std::string said = plan_text(config, c.layout.ranks(), planned, &measured);
    EXPECT_NE(said.find("\nsent to experts"), std::string::npos) << said;
  }
}

// The gradient of the keys' biases is 0, of which rounding makes 1e-18 and Adam 1e-12, beside
// biases of 1e-3.
constexpr double kRoundedZeros = 1e-8;

// Schedules that update on their way are no serial run: ep shall make no difference to them.
TEST(ExpertsOfUpdatesOnTheWay, AreTheSameWhereRanksShareThem) {
  for (const char* schedule : {"pipedream", "2bw"}) {
    const LayoutCase c{.dp = 2, .pp = 2, .schedule = schedule, .clipped = false};
    TrainConfig config = config_of(c);
    config.model.experts = {.count = 8, .every = 1};
    config.batch = 12;  // micro-batches of 2 on each rank
    const auto run = [&] {
      return run_layout<BothLossesOf>({.ranks = 4}, config, 3, toy_experts(parts_of(c)));
    };
    const std::vector<RunRecord> each_has_all = run();
    config.ep = 2;
    EXPECT_TRUE(same_steps(each_has_all, run(), kRoundedZeros)) << schedule;
  }
}

}  // namespace
}  // namespace aisc
