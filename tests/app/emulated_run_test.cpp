// What `./aisc train --machine` does: one step on machines that are not there.
#include "app/emulated_run.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "app/options.h"
#include "common/model/replicas.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

EmulatedRun small_run(int ranks, bool meta = true) {
  EmulatedRun run{.machine = find_machine("dgx-a100"), .ranks = ranks, .meta = meta};
  run.config.model = {.layers = 2, .heads = 2, .width = 32, .context = 16, .vocabulary = 256};
  run.config.batch = 2 * ranks;
  return run;
}

const std::vector<std::uint8_t> kText(100, 'a');

// Inside a node, where all ranks are alike, and over several nodes, where they are not.
TEST(EmulatedRun, OneRankInPlaceOfAllHasTheirBooks) {
  for (const auto& [machine, ranks] : std::vector<std::pair<std::string, int>>{{"dgx-a100", 2},
                                                                               {"dgx-a100", 3},
                                                                               {"dgx-a100", 8},
                                                                               {"dgx-a100", 12},
                                                                               {"dgx-a100", 24},
                                                                               {"dgx-2", 16},
                                                                               {"dgx-2", 32},
                                                                               {"dgx-2", 40}}) {
    EmulatedRun run = small_run(ranks);
    run.machine = find_machine(machine);
    run.steps = 4;
    const EmulatedStep all = emulate(run, kText);
    run.most_run = 1;
    ASSERT_TRUE(run.runs_one());
    const EmulatedStep one = emulate(run, kText);
    EXPECT_NEAR(one.seconds / all.seconds, 1, 1e-12) << ranks;
    EXPECT_NEAR(one.exposed_seconds / all.exposed_seconds, 1, 1e-11) << ranks;
    EXPECT_NEAR(one.communication_seconds / all.communication_seconds, 1, 1e-11) << ranks;
    EXPECT_EQ(one.sent_bytes, all.sent_bytes) << ranks;
    for (int p = 0; p < kPurposeCount; ++p)
      EXPECT_EQ(one.ledger[static_cast<Purpose>(p)].peak_bytes,
                all.ledger[static_cast<Purpose>(p)].peak_bytes)
          << ranks << name_of(static_cast<Purpose>(p));
  }
}

// As they are, each a thread; and one in place of them on a machine where ranks share cards.
TEST(EmulatedRun, OfAThousandRanks) {
  EmulatedRun run = small_run(1024);
  run.machine = find_machine("superpod");
  run.config.model = {.layers = 1, .heads = 1, .width = 4, .context = 2, .vocabulary = 8};
  run.most_run = 1024;
  const EmulatedStep all = emulate(run, kText);
  run.most_run = 1;
  EXPECT_NEAR(emulate(run, kText).seconds / all.seconds, 1, 1e-12);
}

TEST(EmulatedRun, WithNumbersRunsOnManyRanks) {
  EXPECT_GT(emulate(small_run(65, false), kText).loss, 5);
}

TEST(EmulatedRun, RunsAllWhereSharesDiffer) {
  EmulatedRun run = small_run(8);
  run.most_run = 1;
  run.config.batch = 17;
  EXPECT_FALSE(run.runs_one());
  run.config.batch = 16;
  run.meta = false;
  EXPECT_FALSE(run.runs_one()) << "each has samples of its own";
}

TEST(EmulatedRun, TellsBytesSecondsAndDays) {
  const EmulatedRun run = small_run(4);
  const EmulatedStep step = emulate(run, kText);
  const std::string text = emulated_report(run, step, 1e9);
  for (const char* words :
       {"4 ranks of dgx-a100", "without numbers", "parameters", "4 N", "8 N", "product",
        "communication, exposed", "tokens/s", "1e+09 tokens", "days", "model FLOP utilisation"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  double parts = 0;
  for (const auto& [part, seconds] : step.seconds_by_part) parts += seconds;
  EXPECT_NEAR(parts / step.seconds, 1, 0.02) << "time that belongs to no part";
  EXPECT_EQ(step.loss, 0);
  EXPECT_GT(emulate(small_run(4, false), kText).loss, 5) << "with numbers";
}

TEST(EmulatedRun, SaysByHowMuchAModelDoesNotFit) {
  EmulatedRun run = small_run(1);
  run.config.model = {.layers = 96, .heads = 96, .width = 12288, .context = 2048};
  EXPECT_TRUE(error_says([&] { emulate(run, BlankWindows(2048)); },
                         {"a rank needs about", "weights, gradients and optimizer", "dgx-a100 has",
                          "80 GB", "too few", "--precision bf16"}));
  run.config.model = {.layers = 12, .heads = 12, .width = 768, .context = 1024};
  run.config.batch = 256;
  EXPECT_TRUE(
      error_says([&] { emulate(run, BlankWindows(1024)); }, {"80 GB", "--recompute block"}));
}

// Two sums under way: the second is over later, and waiting for any takes the first.
TEST(Replicas, WaitForTheEarliest) {
  const Machine machine = find_machine("dgx-a100");
  const Network network = machine.network(4);
  launch(on_machine(machine, 1, {.meta = true}), [&](Rank rank) {
    const auto world = make_replicas(4, network, rank);
    const Tensor x({1 << 20}, DType::F32, rank.device), y({8}, DType::F32, rank.device);
    Work works[] = {world->all_reduce(x), world->all_reduce(y)};
    EXPECT_EQ(wait_any(works), 0u);
    const double first = rank.clock.now();
    EXPECT_GT(first, 0);
    EXPECT_FALSE(works[1].done());
    works[1].wait();
    EXPECT_GT(rank.clock.now(), first);
  });
}

// Seconds and bytes of a gather and a scatter on rank 0.
std::pair<double, std::int64_t> gathered_and_scattered(Communicator& world, const Rank& rank) {
  const Tensor all({1 << 12}, DType::F32, rank.device), part({1 << 10}, DType::F32, rank.device);
  Work gather = world.all_gather(part, all);
  gather.wait();
  world.reduce_scatter(all, part).wait();
  return {rank.clock.now(), world.stats().sent().wire_bytes};
}

TEST(Replicas, GatherAndScatterWithoutNumbersAsTheyAllWould) {
  const Machine machine = find_machine("dgx-a100");
  const Network network = machine.network(4);
  std::pair<double, std::int64_t> all, one;
  launch(on_machine(machine, 4, {.meta = true}), [&](Rank rank) {
    const auto found = gathered_and_scattered(rank.world, rank);
    if (rank.world.rank() == 0) all = found;
  });
  launch(on_machine(machine, 1, {.meta = true}),
         [&](Rank rank) { one = gathered_and_scattered(*make_replicas(4, network, rank), rank); });
  EXPECT_GT(all.second, 0);
  EXPECT_EQ(one.second, all.second);
  EXPECT_DOUBLE_EQ(one.first, all.first);
}

TEST(Replicas, RefuseWhatDependsOnTheOthers) {
  const Machine machine = find_machine("dgx-a100");
  const Network network = machine.network(4);
  launch(on_machine(machine, 1), [&](Rank rank) {
    const auto world = make_replicas(4, network, rank);
    double numbers[] = {1.5, 2};
    CpuDevice host;
    const View view(numbers, {2}, DType::F64, host);
    world->all_reduce(view).wait();
    EXPECT_EQ(numbers[0], 6) << "four times the same";
    world->all_reduce(view, ReduceOp::Max).wait();
    EXPECT_EQ(numbers[1], 8);
    EXPECT_TRUE(error_says([&] { world->send(view, 1).wait(); }, {"world", "in place of 4"}));
    EXPECT_TRUE(error_says([&] { world->split(0, 0, "part"); }, {"world", "in place of 4"}));
    EXPECT_TRUE(error_says([&] { world->broadcast(view, 0).wait(); }, {"in place of 4"}));
    EXPECT_TRUE(
        error_says([&] { world->all_reduce(view, ReduceOp::Product).wait(); }, {"in place of 4"}));
    std::int64_t count = 1;
    const View counts(&count, {1}, DType::I64, host);
    EXPECT_TRUE(error_says([&] { world->all_reduce(counts).wait(); }, {"in place of 4"}));
    double part[] = {1};
    double four[] = {1, 2, 3, 4};
    EXPECT_TRUE(error_says(
        [&] {
          world
              ->reduce_scatter(View(four, {4}, DType::F64, host), View(part, {1}, DType::F64, host))
              .wait();
        },
        {"in place of 4", "hold no numbers"}));
    EXPECT_TRUE(error_says([&] { make_replicas(5000, network, rank); }, {"5000", "at most 4096"}));
  });
}

}  // namespace
}  // namespace aisc
