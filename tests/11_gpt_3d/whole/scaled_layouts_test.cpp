// Losses that are scaled, in layouts of ranks: steps whose gradients overflow on one rank, the
// first, one in the middle, the last, are skipped on all, and what is left is what one rank leaves.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "10_model_compression/scaled_step.h"
#include "11_gpt_3d/mesh_norm.h"
#include "11_gpt_3d/step_order.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"

namespace aisc {
namespace {

// Good, an overflow that is forgiven, one that halves, good, one that halves, good, good: grows.
constexpr int kSteps = 8;
bool overflows(std::uint64_t step) { return step == 1 || step == 2 || step == 4; }
constexpr LossScaleOptions kRule{.initial = 1024, .window = 2, .hysteresis = 2, .floor = 1};
const std::vector<double> kScales{1024, 1024, 1024, 512, 512, 256, 256, 512};

void make_infinite(View grad) {
  dispatch(grad.dtype(), [&](auto type) {
    using T = decltype(type);
    grad.data<T>()[0] = static_cast<T>(std::numeric_limits<float>::infinity());
  });
}

// Of one rank of the world, in each of its layers: a gradient that it has for itself, no part of it
// that other ranks of a layer have as well.
class OverflowOnOneRank final : public LayerHook {
 public:
  OverflowOnOneRank(const Rank& rank, const Model& model, const Mesh* mesh, int bad)
      : model_(model), is_bad_(rank.world.rank() == bad), in_parts_(mesh && mesh->shape().tp > 1) {}
  void after_backward(std::size_t layer, const Pass& pass) override {
    if (!is_bad_ || !overflows(pass.step) || !pass.last_micro_batch) return;
    for (Parameter* p : model_.layers[layer]->parameters())
      if (!in_parts_ || p->split_dim >= 0) {
        make_infinite(p->grad());
        return;
      }
  }

 private:
  const Model& model_;
  bool is_bad_, in_parts_;
};

StepParts scaled_on(StepParts parts, int bad_rank) {
  parts.scale = [] { return scaled_step(kRule); };
  parts.hooks.push_back([bad_rank](const Rank& rank, const Model& model, Mesh* mesh) {
    return std::make_unique<OverflowOnOneRank>(rank, model, mesh, bad_rank);
  });
  return parts;
}

// Reports a norm that can be compared, and checks the scale.
class ScaleCheckingTrainer {
 public:
  ScaleCheckingTrainer(const Rank& rank, const TrainConfig& config, const StepParts& parts)
      : trainer_(rank, config, parts) {}
  StepReport step(const BatchSampler& data) {
    const auto i = static_cast<std::uint64_t>(trainer_.steps_taken());
    StepReport report = trainer_.step(data);
    EXPECT_EQ(report.skipped, overflows(i)) << "step " << i;
    EXPECT_EQ(report.scale, kScales[i]) << "step " << i;
    if (report.skipped) report.gradient_norm = -1;
    return report;
  }
  const Optimizer& optimizer() const { return trainer_.optimizer(); }

 private:
  Trainer trainer_;
};

// Of a skipped step there are no gradients to compare.
std::vector<RunRecord> without_gradients(std::vector<RunRecord> records) {
  for (std::size_t i = 0; i < records.size(); ++i)
    if (overflows(i)) records[i].gradients.clear();
  return records;
}

std::vector<RunRecord> scaled_run(const LayoutCase& c, const TrainConfig& config, StepParts parts,
                                  int bad_rank) {
  if (config.has_mesh()) {
    parts.finish = finish_step;
    parts.own_square = own_square;
  }
  return without_gradients(run_layout<ScaleCheckingTrainer>(
      {.ranks = config.has_mesh() || c.dp > 1 ? c.ranks() : 1, .virtual_time = c.virtual_time},
      config, kSteps, scaled_on(std::move(parts), bad_rank)));
}

class ScaledLayouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(ScaledLayouts, SkipWhatOneRankSkips) {
  const LayoutCase& c = GetParam();
  TrainConfig config = config_of(c);
  TrainConfig alone = config;
  alone.pp = alone.tp = alone.cp = alone.ep = 1;
  alone.recompute = {};
  const std::vector<RunRecord> one = without_gradients(
      run_layout<ScaleCheckingTrainer>({.ranks = 1}, alone, kSteps, scaled_on(parts_of_one(c), 0)));
  // The first, the middle or the last, in turns.
  const int bad = std::array{
      0, c.ranks() / 2,
      c.ranks() - 1}[static_cast<std::size_t>((c.dp + c.pp + c.tp + c.zero + c.micro) % 3)];
  EXPECT_TRUE(same_steps(one, scaled_run(c, config, parts_of(c), bad)))
      << "gradients overflow on rank " << bad;
}

// In F16 sums in another order round otherwise, and what is skipped is the same.
TEST(ScaledLayoutsInF16, LoseAndSkipWhatOneRankDoes) {
  constexpr double kRoundingOfF16 = 0.02;  // nats of a loss, after 8 steps
  for (const LayoutCase& c :
       {LayoutCase{.dp = 2}, LayoutCase{.dp = 3, .zero = 3, .micro = 2},
        LayoutCase{.pp = 2, .schedule = "1f1b"}, LayoutCase{.dp = 2, .tp = 2, .zero = 1}}) {
    TrainConfig config = config_of(c);
    config.model.dtype = config.gradient_dtype = DType::F16;
    TrainConfig alone = config;
    alone.pp = alone.tp = 1;
    const auto one =
        run_layout<ScaleCheckingTrainer>({.ranks = 1}, alone, kSteps, scaled_on({}, 0));
    const auto found = scaled_run(c, config, parts_of(c), c.ranks() - 1);
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(found[i].losses.back(), one[i].losses.back(), kRoundingOfF16)
          << c << ", step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fixed, ScaledLayouts,
    ::testing::Values(LayoutCase{.dp = 3}, LayoutCase{.dp = 8, .micro = 1},
                      LayoutCase{.dp = 2, .zero = 1}, LayoutCase{.dp = 3, .zero = 2},
                      LayoutCase{.dp = 3, .zero = 3},
                      LayoutCase{.dp = 2, .zero = 3, .owners = true}, LayoutCase{.tp = 2},
                      LayoutCase{.dp = 2, .tp = 2, .micro = 1},
                      LayoutCase{.dp = 2, .tp = 2, .zero = 1, .sequence = true, .micro = 2},
                      LayoutCase{.dp = 2, .tp = 2, .zero = 3, .sequence = true, .micro = 2},
                      LayoutCase{.pp = 3, .schedule = "1f1b"},
                      LayoutCase{.pp = 2, .schedule = "gpipe"},
                      LayoutCase{.pp = 2, .schedule = "interleaved", .chunks = 2},
                      LayoutCase{.dp = 2, .pp = 2, .zero = 1, .schedule = "1f1b"},
                      LayoutCase{.dp = 2, .pp = 2, .zero = 3, .schedule = "1f1b"},
                      LayoutCase{.dp = 2, .pp = 2, .tp = 2, .schedule = "1f1b", .micro = 2},
                      LayoutCase{.dp = 2, .cp = 2, .micro = 2},
                      LayoutCase{.dp = 2, .ep = 2, .router = "top2", .micro = 2},
                      LayoutCase{.dp = 4, .zero = 2, .ep = 2, .router = "top2", .micro = 1},
                      LayoutCase{.dp = 2, .weights_away = true, .saved_away = true},
                      LayoutCase{.dp = 2, .update_away = true},
                      LayoutCase{.dp = 3, .zero = 1, .update_away = true},
                      LayoutCase{.dp = 2, .pp = 2, .schedule = "1f1b", .virtual_time = true}));

}  // namespace
}  // namespace aisc
