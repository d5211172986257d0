// What a rank sends in a step, by operation, in calls and bytes: the formulas of ZeRO, section 7.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "03_data_parallel/bucketed_reduction.h"
#include "03_data_parallel/layered.h"
#include "04_sharding/sharded_units.h"
#include "common/model/emulated_device.h"
#include "tests/04_sharding/whole/gpt_sizes.h"
#include "tests/04_sharding/whole/toy_run.h"
#include "tests/support/exact_network.h"

namespace aisc {
namespace {

// Of a step of m micro-batches: elements over all ranks, and calls. There are five units: table,
// positions, two blocks, norm.
struct Volume {
  std::int64_t elements, calls;
};
struct Case {
  const char* says;
  ShardOptions options;
  std::function<Volume(const Sizes&, int m)> scattered, gathered;
  MicroBatchLoop loop = one_after_another;
};

Volume once(const Sizes& s, int) { return {s.all, 5}; }
Volume each_time(const Sizes& s, int m) { return {m * s.all, m * 5}; }

const Case kCases[] = {
    {"stage 1: 2 Psi", {.stage = 1}, once, once},
    {"stage 2: (m + 1) Psi", {.stage = 2}, each_time, once},
    {"stage 2, layered: the same", {.stage = 2}, each_time, once, layered},
    // The head needs the table between the embedding's forward and backward, and has it alone; from
    // one micro-batch to the next it stays.
    {"stage 3: 3 m Psi, and the table once more",
     {.stage = 3},
     each_time,
     [](const Sizes& s, int m) {
       return Volume{2 * m * s.all + s.table, 10 * m + 1};
     }},
    // The head's backward asks for the norm, which its next forward frees.
    {"stage 3, layered: 2 Psi, the table once more, and m - 1 times the last norm",
     {.stage = 3},
     each_time,
     [](const Sizes& s, int m) {
       return Volume{2 * s.all + s.table + (m - 1) * s.norm, 11 + m - 1};
     },
     layered},
    {"stage 3, nothing ahead: as with a layer ahead",
     {.stage = 3, .gather = {.prefetch = 0}},
     each_time,
     [](const Sizes& s, int m) {
       return Volume{2 * m * s.all + s.table, 10 * m + 1};
     }},
    {"stage 3, whole until backward: 2 m Psi, without the table's between two micro-batches",
     {.stage = 3, .gather = {.reuse = GatherOptions::kAll}},
     each_time,
     [](const Sizes& s, int m) {
       return Volume{m * s.all - (m - 1) * s.table, 5 * m - (m - 1)};
     }},
    // The last block's backward is the next that needs anything.
    {"stage 3, small units always whole: once after the update",
     {.stage = 3, .gather = {.persist = 600}},
     each_time,
     [](const Sizes& s, int m) {
       return Volume{3 * m * s.block + s.table + s.positions + s.norm, 3 * m + 3};
     }}};

// What an all-reduce of a number in F64 sends from this rank, by the plan that runs.
std::int64_t wire_of_a_number(const Rank& rank) {
  const Collective number{.call = {.op = CommOp::AllReduce, .count = 1, .dtype = DType::F64}};
  std::int64_t bytes = 0;
  const Plan plan = ring_all_reduce(number, rank.world.rank(), rank.world.size());
  for (const PlanAction& action : plan.actions)
    if (action.kind == PlanAction::Kind::Send) bytes += 8 * action.from.count;
  return bytes;
}

// What a rank sends in a step after the first one.
template <class Step>
CommStats sent_in(const Rank& rank, const Step& step) {
  step();
  const CommStats before = rank.world.stats();
  step();
  CommStats sent = rank.world.stats();
  for (std::size_t op = 0; op < sent.rows.size(); ++op) {
    sent.rows[op].calls -= before.rows[op].calls;
    sent.rows[op].payload_bytes -= before.rows[op].payload_bytes;
  }
  for (auto& [peer, row] : sent.peers) {
    const auto found = before.peers.find(peer);
    if (found != before.peers.end()) row.wire_bytes -= found->second.wire_bytes;
  }
  return sent;
}

void expect_row(const CommStats& stats, CommOp op, std::int64_t calls, std::int64_t bytes) {
  EXPECT_EQ(stats[op].calls, calls) << name_of(op);
  EXPECT_EQ(stats[op].payload_bytes, bytes) << name_of(op);
}

class ShardedVolumes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedVolumes, ::testing::Values(1, 2, 3, 4, 8),
                         ::testing::PrintToStringParamName());

TEST_P(ShardedVolumes, AreThePapersByOperation) {
  const Machine machine = find_machine("limitless");
  const std::int64_t N = GetParam();
  for (const Case& c : kCases)
    for (const int m : {1, 3})
      launch(on_machine(machine, GetParam(), {.meta = true}), [&](const Rank& rank) {
        SCOPED_TRACE(std::string(c.says) + ", " + std::to_string(m) + " micro-batches, rank " +
                     std::to_string(rank.world.rank()));
        TrainConfig config = config_of(m);
        config.gradient_dtype = DType::F32;
        StepParts parts = sharded(c.options);
        parts.loop = c.loop;
        Books books(rank, config, parts);
        const CommStats sent = sent_in(rank, [&] { books.step(); });
        const Volume scattered = c.scattered(books.sizes, m), gathered = c.gathered(books.sizes, m);
        constexpr std::int64_t kF32 = 4;  // bytes of a gradient
        expect_row(sent, CommOp::ReduceScatter, scattered.calls, kF32 * scattered.elements);
        // The payload of a gather is what a rank has of it.
        expect_row(sent, CommOp::AllGather, gathered.calls, kBytes * gathered.elements / N);
        expect_row(sent, CommOp::AllReduce, 2, 16);  // the loss, and the norm
        std::int64_t calls = 0;
        for (const CommStats::Row& row : sent.rows) calls += row.calls;
        EXPECT_EQ(calls, scattered.calls + gathered.calls + 2) << "nothing else is sent";
        EXPECT_EQ(sent.sent().wire_bytes,
                  (kF32 * scattered.elements + kBytes * gathered.elements) * (N - 1) / N +
                      2 * wire_of_a_number(rank))
            << "a ring sends (N - 1)/N of what it scatters or gathers";
      });
}

// Elements that are gathered in turn after turn, each time that a unit comes.
std::int64_t gathered_in(const GatherSchedule& schedule, const Sizes& sizes) {
  std::int64_t sum = 0;
  for (std::size_t turn = 0; turn < schedule.size(); ++turn)
    for (const std::size_t unit : schedule[turn])
      if (turn == 0 || std::count(schedule[turn - 1].begin(), schedule[turn - 1].end(), unit) == 0)
        sum += sizes.counts[unit];
  return sum;
}

// Two rows of that table by the schedule itself.
TEST_P(ShardedVolumes, AreWhatTheScheduleGathers) {
  const Machine machine = find_machine("limitless");
  for (const GatherOptions& options :
       {GatherOptions{.prefetch = 3, .live = 6000}, GatherOptions{.prefetch = 2, .reuse = 4000}})
    for (const int m : {1, 3})
      launch(on_machine(machine, GetParam(), {.meta = true}), [&](const Rank& rank) {
        Books books(rank, config_of(m), sharded({.stage = 3, .gather = options}));
        const GatherSchedule one =
            gather_schedule(layer_units(books.trainer.model(), books.trainer.parameters().units()),
                            books.sizes.counts, options, Turns::ForwardAndBackward);
        GatherSchedule all;  // what is whole when one micro-batch ends stays for the next
        for (int i = 0; i < m; ++i) all.insert(all.end(), one.begin(), one.end());
        const CommStats sent = sent_in(rank, [&] { books.step(); });
        EXPECT_EQ(sent[CommOp::AllGather].payload_bytes,
                  kBytes * gathered_in(all, books.sizes) / GetParam());
      });
}

// A rank without windows of its own takes part where weights are gathered.
TEST(ShardedEvaluation, GathersEachUnitAndTheTableForTheHead) {
  for (const int stage : {1, 2, 3})
    launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
      Books books(rank, config_of(), sharded({.stage = stage}));
      const auto evaluate = [&] {
        if (rank.world.rank() == 0)
          books.evaluate();
        else
          books.trainer.evaluate({});
      };
      const CommStats sent = sent_in(rank, evaluate);
      const bool gathers = stage == 3;
      expect_row(sent, CommOp::AllGather, gathers ? 6 : 0,
                 gathers ? kBytes * (books.sizes.all + books.sizes.table) / 2 : 0);
      expect_row(sent, CommOp::ReduceScatter, 0, 0);
      // Terms and samples, then losses and terms; and, to gather as often as the others, how many
      // windows there are.
      expect_row(sent, CommOp::AllReduce, gathers ? 3 : 2, gathers ? 40 : 32);
    });
}

// Layers of a unit each, which no padding makes longer: any number of ranks up to 8 has as much.
const std::vector<toy::Size> kLayers = {{.count = 1024}, {.count = 512}, {.count = 2048}};
constexpr std::int64_t kPsi = 1024 + 512 + 2048;

// Elements that a rank sends in a step, times N / (N - 1).
std::int64_t elements_of(const Rank& rank, const StepParts& parts, int micro_batches) {
  ToyRun run(rank, kLayers, parts);
  const CommStats sent = sent_in(rank, [&] {
    run.step(micro_batches);
    run.reducer->updated();
  });
  const std::int64_t ranks = rank.world.size(), wire_bytes = sent.sent().wire_bytes;
  EXPECT_EQ(wire_bytes % (kF64 * (ranks - 1)), 0);
  return wire_bytes / kF64 * ranks / (ranks - 1);
}

TEST(ShardedVolume, BesideThatOfAnAllReduce) {
  struct Row {
    ShardOptions options;
    int micro_batches;
    std::int64_t elements;
  };
  const ShardOptions kept{.stage = 3, .gather = {.reuse = GatherOptions::kAll}};
  const Row rows[] = {
      {{.stage = 1}, 1, 2 * kPsi},
      {{.stage = 1}, 4, 2 * kPsi},
      {{.stage = 2}, 1, 2 * kPsi},
      {{.stage = 2}, 4, 5 * kPsi},
      {kept, 1, 2 * kPsi},
      // The last layer's unit is there for its own backward, the first one's for the next forward.
      {{.stage = 3}, 1, 3 * kPsi - 2048},
      {{.stage = 3}, 4, 4 * (3 * kPsi - 2048) - 3 * 1024},
  };
  for (const int ranks : {2, 4, 8})
    launch({.ranks = ranks, .network = exact::kFlat, .bind = false}, [&](const Rank& rank) {
      EXPECT_EQ(elements_of(rank, {.reducer = bucketed({})}, 1), 2 * kPsi) << "module 03's";
      for (const Row& row : rows)
        EXPECT_EQ(elements_of(rank, sharded(row.options), row.micro_batches), row.elements)
            << "stage " << row.options.stage << ", " << row.micro_batches << " micro-batches";
    });
}

}  // namespace
}  // namespace aisc
