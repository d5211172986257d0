// What --algorithm says: by any of module 09's algorithms ranks leave what one rank leaves, and
// they send what that algorithm sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "09_collectives/algorithms.h"
#include "11_gpt_3d/step_of.h"
#include "app/emulated_run.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

constexpr int kStepsOfEach = 2;
constexpr const char* kOnMachine = "dgx-a100";

Options asked(const std::string& algorithm, int ranks, const std::string& machine = "") {
  Options options;
  options.algorithm = algorithm;
  options.ranks = ranks;
  options.machine = machine;
  return options;
}

// What is to be told, told.
std::string in_full(std::string_view name) {
  const std::map<std::string_view, const char*> told{{"double_tree", "double_tree/segments=3"},
                                                     {"chain", "chain/segments=2"},
                                                     {"two_level", "two_level/ranks_per_node=2"}};
  const auto found = told.find(name);
  return found == told.end() ? std::string(name) : found->second;
}

struct AlgorithmCase {
  std::string algorithm;
  LayoutCase layout;
};
void PrintTo(const AlgorithmCase& c, std::ostream* out) { *out << c.algorithm << ", " << c.layout; }

LayoutCase shards_by() { return {.dp = 3, .zero = 3}; }
LayoutCase mesh_by() { return {.dp = 2, .pp = 2, .tp = 2, .schedule = "1f1b"}; }

// Each on replicas, on shards if there is something of it, and those that sum on a mesh.
std::vector<AlgorithmCase> algorithm_cases() {
  std::map<std::string, std::vector<CommOp>> operations;
  for (const Algorithm& a : algorithms()) operations[in_full(a.name)].push_back(a.op);
  std::vector<AlgorithmCase> all;
  for (const auto& [name, ops] : operations) {
    const auto has = [&its = ops](CommOp op) { return std::count(its.begin(), its.end(), op) > 0; };
    all.push_back({name, {.dp = 3}});
    if (has(CommOp::ReduceScatter) || has(CommOp::AllGather)) all.push_back({name, shards_by()});
    if (has(CommOp::AllReduce)) all.push_back({name, mesh_by()});
  }
  for (LayoutCase layout : {LayoutCase{.dp = 3}, shards_by(), mesh_by()}) {
    layout.virtual_time = true;
    all.push_back({"auto", layout});
  }
  return all;
}

class Algorithms : public ::testing::TestWithParam<AlgorithmCase> {};
INSTANTIATE_TEST_SUITE_P(Of09, Algorithms, ::testing::ValuesIn(algorithm_cases()));

TEST_P(Algorithms, LeaveWhatOneRankLeaves) {
  const LayoutCase& layout = GetParam().layout;
  const TrainConfig config = config_of(layout);
  const PlanTable plans =
      plans_of(asked(GetParam().algorithm, layout.ranks(), layout.virtual_time ? kOnMachine : ""));
  EXPECT_TRUE(same_steps(
      serial_of(config, kStepsOfEach),
      run_layout({.ranks = layout.ranks(), .virtual_time = layout.virtual_time, .plans = plans},
                 config, kStepsOfEach, parts_of(layout))));
}

// One number is added up by p ranks: in 2 (p - 1) messages of a rank, or in log2 p.
TEST(PlansOf, AreThoseOfTheName) {
  for (const auto& [name, messages] : {std::pair{"ring", 14}, {"recursive_doubling", 3}}) {
    launch({.ranks = 8, .network = Network{}, .plans = plans_of(asked(name, 8))},
           [&, each = messages](Rank rank) {
             const Tensor one = Tensor::zeros({8}, DType::F64, rank.device);
             rank.world.all_reduce(one.view()).wait();
             EXPECT_EQ(rank.world.sent_by_family().messages, each);
           });
  }
  EXPECT_FALSE(plans_of(asked("backend", 2))[CommOp::AllReduce]);
  EXPECT_FALSE(plans_of(asked("naive", 2))[CommOp::Broadcast]) << "there is none of the name";
}

// A machine's links decide, call by call: never slower than what is taken for all of them.
TEST(PlansOf, AreChosenByTheMachine) {
  EmulatedRun run{.machine = find_machine(kOnMachine), .ranks = 16, .meta = true};
  run.config.model = {.layers = 2, .heads = 2, .width = 64, .context = 16, .vocabulary = 256};
  run.config.batch = 16;
  std::map<std::string, double> seconds;
  for (const char* name : {"backend", "ring", "tree", "auto"}) {
    run.plans = plans_of(asked(name, 16, kOnMachine));
    seconds[name] = emulate(run, TokenView(std::vector<std::uint8_t>(17))).seconds;
  }
  EXPECT_EQ(seconds["backend"], seconds["ring"]);
  EXPECT_LT(seconds["auto"], seconds["ring"]);
  EXPECT_LT(seconds["auto"], seconds["tree"]);
}

TEST(PlansOf, SayWhatIsWrongWithAName) {
  const auto said = [](const char* name) { return message_of([&] { plans_of(asked(name, 4)); }); };
  EXPECT_THAT(
      said("rign"),
      ::testing::AllOf(::testing::StartsWith("--algorithm rign: expected one of naive, ring"),
                       ::testing::EndsWith("dissemination, backend or auto")));
  EXPECT_THAT(said("auto"), ::testing::HasSubstr("only beside --machine"));
  EXPECT_THAT(said("two_level"), ::testing::HasSubstr("expected two_level/ranks_per_node="));
  EXPECT_THAT(said("ring/laps=2"), ::testing::HasSubstr("expected segments=, ranks_per_node= or"));
}

}  // namespace
}  // namespace aisc
