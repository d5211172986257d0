// One rank a stage in place of a mesh: the books and the seconds of running all of it; and a mesh
// in any order of its directions on two nodes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "11_gpt_3d/placement.h"
#include "11_gpt_3d/slow_bytes.h"
#include "11_gpt_3d/step_of.h"
#include "app/emulated_run.h"
#include "common/model/stage_replicas.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

const std::vector<std::uint8_t> kText(4096, 'a');

Options options_of(const MeshShape& mesh, int zero = 0, int layers = 2) {
  Options o;
  o.ranks = mesh.ranks();
  o.train.model = {.layers = layers * mesh.pp,
                   .heads = 8,
                   .width = 1024,
                   .context = 512,
                   .vocabulary = 100,
                   .dtype = DType::BF16};
  o.train.gradient_dtype = DType::BF16;
  o.train.micro_batches = 2 * mesh.pp;
  o.train.batch = 32 * mesh.dp * o.train.micro_batches;
  o.train.clip = 1;
  o.train.pp = mesh.pp;
  o.train.tp = mesh.tp;
  o.train.ep = mesh.ep;
  if (mesh.ep > 1) o.train.model.experts = {.count = 16, .router = "top2", .shared = true};
  o.sharding.zero = zero;
  o.data_parallel.overlap = false;
  return o;
}

EmulatedRun run_of_replicas(const MeshShape& mesh, const std::string& machine, int zero = 0,
                            int layers = 2) {
  const Options options = options_of(mesh, zero, layers);
  return {.config = options.train,
          .machine = find_machine(machine),
          .ranks = mesh.ranks(),
          .meta = true,
          .parts = step_of(options)};
}

struct ReplicasCase {
  MeshShape mesh;
  const char* machine;
  int zero = 0;
  double tolerance = 0.01;  // of seconds
};
class OneRankAStage : public ::testing::TestWithParam<ReplicasCase> {};
INSTANTIATE_TEST_SUITE_P(
    OnMachines, OneRankAStage,
    ::testing::Values(ReplicasCase{{.dp = 2, .pp = 2, .tp = 2}, "dgx-a100"},   // in one node
                      ReplicasCase{{.dp = 1, .pp = 4, .tp = 2}, "dgx-a100"},   // no replicas
                      ReplicasCase{{.dp = 6, .pp = 1, .tp = 4}, "dgx-a100"},   // no stages
                      ReplicasCase{{.dp = 2, .pp = 4, .tp = 8}, "dgx-a100"},   // tp is a node
                      ReplicasCase{{.dp = 12, .pp = 2, .tp = 2}, "dgx-a100"},  // dp fills nodes
                      ReplicasCase{{.dp = 4, .pp = 2, .tp = 4}, "dgx-a100", 1},
                      ReplicasCase{{.dp = 4, .pp = 1, .tp = 8}, "dgx-a100", 3},
                      // Experts in a part of a node, in one, in two.
                      ReplicasCase{{.dp = 8, .pp = 2, .tp = 2, .ep = 2}, "dgx-a100"},
                      ReplicasCase{{.dp = 16, .ep = 8}, "dgx-a100", 2},
                      ReplicasCase{{.dp = 32, .ep = 16}, "dgx-a100", 1},
                      ReplicasCase{{.dp = 4, .tp = 4, .ep = 4}, "dgx-a100"},
                      // Ranks leave an exchange of two nodes one after the other, and their
                      // partners in the next stage wait for each other there.
                      ReplicasCase{{.dp = 8, .pp = 2, .tp = 4, .ep = 4}, "dgx-a100", 1, 0.07},
                      // Ranks share cards: one after the other, here each has half of it.
                      ReplicasCase{{.dp = 4, .pp = 2, .tp = 8}, "dgx-2", 0, 0.12}),
    [](const auto& test) {
      const ReplicasCase& c = test.param;
      std::string name = fmt::format("dp{}_pp{}_tp{}_ep{}_zero{}_{}", c.mesh.dp, c.mesh.pp,
                                     c.mesh.tp, c.mesh.ep, c.zero, c.machine);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST_P(OneRankAStage, HaveTheBooksAndTheSecondsOfAll) {
  const ReplicasCase& c = GetParam();
  EmulatedRun run = run_of_replicas(c.mesh, c.machine, c.zero);
  run.most_run = 1024;
  ASSERT_FALSE(run.runs_one());
  const EmulatedStep all = emulate(run, kText);
  run.most_run = 1;
  ASSERT_TRUE(run.runs_one());
  const EmulatedStep one = emulate(run, kText);
  // The sum of the loss, of 8 bytes, goes another way; messages of directions that share a card
  // do not wait for each other.
  EXPECT_NEAR(one.seconds / all.seconds, 1, c.tolerance);
  EXPECT_EQ(one.most_bytes, all.most_bytes);
  for (int p = 0; p < kPurposeCount; ++p)
    EXPECT_EQ(one.ledger[static_cast<Purpose>(p)].peak_bytes,
              all.ledger[static_cast<Purpose>(p)].peak_bytes)
        << name_of(static_cast<Purpose>(p));
  EXPECT_EQ(one.product_flops, all.product_flops);
  // The world's own sums, of a few bytes, go another way.
  EXPECT_NEAR(static_cast<double>(one.sent_bytes), static_cast<double>(all.sent_bytes), 500);
}

TEST(StagesOfReplicas, RefuseWhatTheyCannotBe) {
  const Machine machine = find_machine("dgx-a100");
  launch(on_machine(machine, 2, {.meta = true}), [&](const Rank& rank) {
    const auto refused = [&](const MeshShape& mesh, const char* words) {
      EXPECT_TRUE(error_says([&] { StageReplicas(rank, mesh, machine); }, {words}));
    };
    refused({.dp = 2, .pp = 3}, "2 ranks run, expected one for each of 3 stages");
    refused({.dp = 2, .pp = 2, .cp = 2}, "where cp is 1, found 2");
    refused({.dp = 6, .pp = 2, .ep = 3}, "tp 1 and ep 3 on nodes of 8");
    refused({.dp = 4096, .pp = 2}, "8192 ranks");
    refused({.dp = 8, .pp = 2, .tp = 3}, "tp 3 and ep 1 on nodes of 8");
    StageReplicas replicas(rank, {.dp = 2, .pp = 2}, machine);
    Communicator& world = replicas.world();
    const std::string why = "one rank a stage runs";
    EXPECT_TRUE(error_says([&] { world.send(ConstBuffer(), 1).wait(); }, {why}));
    EXPECT_TRUE(error_says([&] { world.split(0, 0, "half"); }, {why}));
  });
}

// What bytes_between_nodes() expects of two nodes of 8, in all six orders, is what is sent.
TEST(Placement, BytesBetweenNodesAreThoseThatAreSent) {
  const MeshShape mesh{.dp = 2, .pp = 4, .tp = 2};
  const int layers = 16;  // so many that embedding, head and loss hardly count
  const Options options = options_of(mesh, 0, layers);
  const GptConfig& model = options.train.model;
  const std::int64_t m = options.train.micro_batches, size = 2;
  const std::int64_t boundary =
      options.train.batch / mesh.dp * model.context * model.width * size;  // of all micro-batches
  // Two sums forward and two backward of each block's b s h; of embedding, head and loss few.
  StepBytes bytes{.tp = 4 * (model.layers / mesh.pp) * boundary, .forward = boundary};
  bytes.backward = bytes.forward;
  bytes.tables = (model.vocabulary + 28) / mesh.tp * model.width * size;
  bytes.dp = 12 * model.width * model.width * (model.layers / mesh.pp) / mesh.tp * size;
  ASSERT_EQ(m, 8);
  for (const MeshOrder& order : all_orders()) {
    EmulatedRun run = run_of_replicas(mesh, "dgx-a100", 0, layers);
    run.place = [&](Communicator& world) { return placed(world, mesh, order); };
    const EmulatedStep step = emulate(run, kText);
    const auto expected = static_cast<double>(bytes_between_nodes(mesh, order, 8, bytes));
    EXPECT_NEAR(static_cast<double>(step.between_nodes) / expected, 1, 0.02) << to_string(order);
  }
}

}  // namespace
}  // namespace aisc
