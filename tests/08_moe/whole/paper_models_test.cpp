// Published models on a device: the formulas of all-to-all beside the plans, one rank beside all of
// them, parameters beside the papers'.
#include "08_moe/more/paper_models.h"

#include <gtest/gtest.h>

#include <utility>

#include "08_moe/moe_layer.h"
#include "08_moe/more/one_of_experts.h"
#include "common/comm/plan.h"
#include "common/comm/simulate.h"
#include "common/model/emulated_device.h"
#include "common/nn/parameter_store.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// Pairwise: a step inside a node, that of a rank whose partner is a neighbour, is shorter.
constexpr double kOfPlans = 0.03;

TEST(AllToAllSeconds, AreThoseOfThePlans) {
  const Machine machine = find_machine("dgx-h100");
  for (const int ranks : {2, 8, 16, 64})
    for (const std::int64_t bytes : {std::int64_t{4096}, std::int64_t{1} << 20}) {
      const Network network = machine.network(ranks);
      Collective call = call_of(CommOp::AllToAll, ranks, ranks * bytes);
      call.send_counts.assign(static_cast<std::size_t>(ranks), bytes / 4);
      call.recv_counts = call.send_counts;
      for (const auto& [kind, plan] :
           {std::pair<AllToAll, PlanMaker>{AllToAll::AtOnce, direct_all_to_all},
            {AllToAll::Pairwise, pairwise_all_to_all}}) {
        const double followed = simulate(plan, call, ranks, network).seconds;
        EXPECT_NEAR(all_to_all_seconds(kind, machine, ranks, static_cast<double>(bytes)) / followed,
                    1, kOfPlans)
            << ranks << " ranks, " << bytes << " bytes, " << static_cast<int>(kind);
      }
    }
  EXPECT_EQ(all_to_all_seconds(AllToAll::AtOnce, machine, 1, 1e9), 0);
}

// A layer of experts, forward and backward, with these ranks for its experts.
struct LayerFigures {
  double seconds = 0;
  std::int64_t bytes = 0;
};
LayerFigures run_layer(const Rank& rank, Communicator& experts) {
  Model model;
  model.layers.push_back(std::make_unique<MoeLayer>(
      rank, "moe",
      MoeLayer::Options{
          .experts = {.count = 32}, .width = 256, .hidden = 1024, .residual_stddev = 0.02},
      expert_ranks(experts)));
  const ParameterStore copied(rank.device, make_units(model, Sync::Data), {});
  const ParameterStore own(rank.device, make_units(model, Sync::ExpertData), {});
  Saved saved;
  const auto x = [&] { return Tensor({4, 256, 256}, DType::F32, rank.device); };
  const double begin = rank.clock.now();
  model.layers[0]->forward(x(), saved, {});
  model.layers[0]->backward(x(), saved, {});
  return {rank.clock.now() - begin, rank.device.ledger().total.peak_bytes};
}

TEST(OneOfExperts, TakesAsLongAsAllOfThem) {
  const Machine machine = find_machine("dgx-h100");
  LayerFigures all, one;
  launch(on_machine(machine, 16, {.meta = true}), [&](const Rank& rank) {
    const LayerFigures figures = run_layer(rank, rank.world);
    if (rank.world.rank() == 0) all = figures;
  });
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    OneOfExperts experts(AllToAll::Pairwise, machine, 16, rank);
    one = run_layer(rank, experts);
    EXPECT_GT(experts.waiting_seconds(), 0);
  });
  EXPECT_NEAR(one.seconds / all.seconds, 1, kOfPlans);
  EXPECT_EQ(one.bytes, all.bytes);
}

TEST(OneOfExperts, KnowsNothingButEqualCounts) {
  const Machine machine = find_machine("dgx-h100");
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    OneOfExperts experts(AllToAll::AtOnce, machine, 4, rank);
    const Tensor x({8}, DType::F32, rank.device), y({8}, DType::F32, rank.device);
    const std::vector<std::string> words{"experts, rank 0", "one rank runs in place of 4",
                                         "equally many rows"};
    EXPECT_TRUE(error_says([&] { experts.all_reduce(x).wait(); }, words));
    EXPECT_TRUE(error_says([&] { experts.send(x, 1).wait(); }, words));
    EXPECT_TRUE(error_says([&] { experts.split(0, 0, "half"); }, words));
    const std::vector<std::int64_t> uneven{5, 1, 1, 1};
    EXPECT_TRUE(error_says([&] { experts.all_to_all_v(x, uneven, y, uneven).wait(); }, words));
  });
}

TEST(PaperModels, HaveTheParametersOfThePapers) {
  constexpr double kOfThePapers = 0.06;  // printed with one or two digits, and another attention
  for (const PaperModel& model : paper_models()) {
    const ParameterCounts counts = parameters_of(model);
    EXPECT_NEAR(counts.all / 1e9 / model.billions, 1, kOfThePapers) << model.name;
    if (model.active_billions > 0) {
      EXPECT_NEAR(counts.of_a_token / 1e9 / model.active_billions, 1, kOfThePapers) << model.name;
    }
  }
}

// Mixed precision's 16 bytes a parameter, and fewer experts on each of more devices.
TEST(PaperModels, HoldLessOnMoreDevices) {
  const Machine machine = find_machine("dgx-h100");
  const PaperModel& model = paper_models()[0];
  double before = 1e12;
  for (const int devices : {8, 32, 128}) {
    const DeviceStep step =
        run_device(model, machine, AllToAll::AtOnce, devices, model.batch / 32 * devices);
    EXPECT_EQ(step.gradient_bytes, step.parameter_bytes);
    EXPECT_EQ(step.optimizer_bytes, 6 * step.parameter_bytes);
    EXPECT_LT(step.state_bytes(), before) << devices;
    before = step.state_bytes();
  }
  EXPECT_TRUE(error_says([&] { run_device(model, machine, AllToAll::AtOnce, 64, 63); },
                         {"Switch-Base: 63 samples on 64 ranks"}));
}

// "A computation to communication ratio of approximately 1 : 1" (arXiv 2412.19437, section 3.2.1).
TEST(PaperModels, HalfOfAStepOfDeepSeekIsAllToAll) {
  Machine machine = find_machine("dgx-h100");
  machine.nodes = 256;
  machine.launch_seconds = 0;
  const PaperModel& model = paper_models()[2];
  std::vector<DeviceStep> steps;
  for (const int devices : {128, 512, 2048})
    steps.push_back(run_device(model, machine, AllToAll::AtOnce, devices, model.batch));
  EXPECT_LT(steps[0].share(), steps[1].share());
  EXPECT_LT(steps[1].share(), steps[2].share());
  EXPECT_NEAR(steps[2].share(), 0.5, 0.05);
  EXPECT_EQ(half_at(steps), 512);
  EXPECT_EQ(half_at(std::span(steps).first(1)), 0);
}

}  // namespace
}  // namespace aisc
