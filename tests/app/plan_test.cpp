// What a step holds and sends, told before a run: what ranks then measure.
#include "app/plan.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "tests/app/dealt_weights.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

void set(CommStats& stats, CommOp op, std::int64_t payload_bytes) {
  stats.rows[static_cast<std::size_t>(op)] = {.calls = 1, .payload_bytes = payload_bytes};
}

// Of four ranks: 3/4 of twice 600, of the 4 x 100 that a gather makes, and of the 400 scattered.
TEST(RingBytes, AreThoseOfEachOperationByHand) {
  CommStats before, after;
  set(before, CommOp::AllReduce, 1000), set(after, CommOp::AllReduce, 1600);
  set(after, CommOp::AllGather, 100);
  set(before, CommOp::ReduceScatter, 50), set(after, CommOp::ReduceScatter, 450);
  EXPECT_EQ(ring_bytes(before, after, 4), 1500);
  EXPECT_EQ(ring_bytes(before, after, 2), 900) << "half of 1200 + 2 x 100 + 400";
  EXPECT_EQ(ring_bytes(before, after, 1), 0);
  EXPECT_EQ(ring_bytes(after, after, 4), 0);
  set(after, CommOp::Broadcast, 1 << 20);
  EXPECT_EQ(ring_bytes(before, after, 4), 1500) << "no step waits for a broadcast";
}

// Of each rank's second step.
std::vector<StepBooks> measured(const TrainConfig& config, int ranks, Deal deal) {
  std::vector<StepBooks> books(static_cast<std::size_t>(ranks));
  on_ranks(ranks, config, dealt(deal), [&](const Rank& rank, Trainer& trainer) {
    take_steps(trainer, 1);
    rank.device.reset_peaks();
    const SentMeter meter(rank, trainer);
    take_steps(trainer, 1);
    books[static_cast<std::size_t>(rank.world.rank())] = {.ledger = rank.device.ledger(),
                                                          .sent = meter.read()};
  });
  return books;
}

void expect_same(const StepBooks& planned, const StepBooks& found) {
  for (const Purpose p : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer}) {
    EXPECT_EQ(planned.ledger[p].live_bytes, found.ledger[p].live_bytes) << name_of(p);
    EXPECT_EQ(planned.ledger[p].peak_bytes, found.ledger[p].peak_bytes) << name_of(p) << ", most";
    EXPECT_GT(planned.ledger[p].live_bytes, 0) << name_of(p);
  }
  EXPECT_EQ(planned.sent.data, found.sent.data);
  EXPECT_EQ(planned.sent.all(), found.sent.data) << "no other ranks are here";
}

TEST(PlanStep, IsWhatEveryRankMeasures) {
  for (const int ranks : {1, 2, 3, 4})
    for (const DType dtype : {DType::F64, DType::BF16})
      for (const Deal deal : {Deal::Nothing, Deal::Shards})
        for (const std::int64_t micro_batches : {1, 3}) {
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + name_of(dtype) + ", " +
                       std::to_string(micro_batches) + " micro-batches" +
                       (deal == Deal::Shards ? ", shards" : ""));
          TrainConfig config = config_of(dtype);
          config.micro_batches = micro_batches;
          const StepBooks planned = plan_step(config, ranks, dealt(deal)).books;
          const std::vector<StepBooks> found = measured(config, ranks, deal);
          expect_same(planned, found[0]);
          for (const StepBooks& books : found)
            EXPECT_EQ(planned.ledger[Purpose::Activations].peak_bytes,
                      books.ledger[Purpose::Activations].peak_bytes)
                << "as many samples on each";
          EXPECT_EQ(planned.sent.data > 0, ranks > 1);
        }
}

// 13 samples: 4, 4 and 5 of them.
TEST(PlanStep, HasTheLargestShareOfABatchThatDoesNotDivide) {
  TrainConfig config = config_of();
  config.batch = 13;
  const StepBooks planned = plan_step(config, 3, {}).books;
  const std::vector<StepBooks> found = measured(config, 3, Deal::Nothing);
  expect_same(planned, found[0]);
  const auto activations = [](const StepBooks& books) {
    return books.ledger[Purpose::Activations].peak_bytes;
  };
  EXPECT_GT(activations(planned), activations(found[0]));
  EXPECT_EQ(activations(planned), activations(found[2]));
}

TEST(PlanStep, NeedsWhatARankHoldsAtMost) {
  for (const DType dtype : {DType::F64, DType::BF16}) {
    const TrainConfig config = config_of(dtype);
    const PlannedStep planned = plan_step(config, 2, dealt(Deal::Shards));
    const Ledger& ledger = planned.books.ledger;
    EXPECT_EQ(planned.needed.model, static_cast<double>(ledger[Purpose::Parameters].peak_bytes +
                                                        ledger[Purpose::Gradients].peak_bytes +
                                                        ledger[Purpose::Optimizer].peak_bytes));
    EXPECT_EQ(planned.needed.activations,
              static_cast<double>(ledger[Purpose::Activations].peak_bytes));
  }
}

// On a thousand ranks it takes no longer, and of a model of 175 billion parameters no memory.
TEST(PlanStep, IsOfAnySize) {
  TrainConfig config;
  config.model = {.layers = 96, .heads = 96, .width = 12288, .context = 2048, .vocabulary = 50257};
  config.model.dtype = config.gradient_dtype = DType::BF16;
  config.batch = 1024;
  const StepBooks planned = plan_step(config, 1024, {}).books;
  const auto parameters = static_cast<double>(planned.ledger[Purpose::Parameters].live_bytes) / 2;
  EXPECT_NEAR(parameters, 175e9, 1e9);
  EXPECT_EQ(static_cast<double>(planned.ledger[Purpose::Optimizer].live_bytes), 12 * parameters);
  // Gradients in BF16, and the loss; 1024 ranks send 1023/1024 of them twice.
  EXPECT_EQ(planned.sent.data, 1023.0 / 1024 * 2 * (2 * parameters + 8));
}

TEST(PlanStep, SaysWhatCannotBePlanned) {
  TrainConfig config = config_of();
  EXPECT_TRUE(error_says([&] { plan_step(config, 3, dealt(Deal::Pieces)); }, {"in place of 3"}));
  config.batch = 4097;
  EXPECT_TRUE(error_says([&] { plan_step(config, 4097, {}); }, {"4097", "at most 4096"}));
}

Ledger ledger_of(std::int64_t parameters, std::int64_t activations) {
  Ledger ledger;
  ledger.purposes[static_cast<std::size_t>(Purpose::Parameters)] = {parameters, 2 * parameters};
  ledger.purposes[static_cast<std::size_t>(Purpose::Gradients)] = {30, 31};
  ledger.purposes[static_cast<std::size_t>(Purpose::Optimizer)] = {400, 401};
  ledger.purposes[static_cast<std::size_t>(Purpose::Activations)] = {7, activations};
  return ledger;
}

TEST(PlanStep, TakesBatchesThatDoNotDivide) {
  TrainConfig config = config_of();
  config.batch = 9;
  config.micro_batches = 3;
  EXPECT_EQ(message_of([&] { plan_step(config, 2, {}); }), "");
}

TEST(PlanText, IsATable) {
  TrainConfig config = config_of(DType::BF16);
  const StepBooks planned{.ledger = ledger_of(1000, 50), .sent = {.data = 1500}};
  EXPECT_EQ(plan_text(config, 1, planned),
            "A step on each of 1 rank, weights in BF16, gradients in F32, 1 micro-batch; bytes\n"
            "                                       planned\n"
            "parameters, between steps                 1000\n"
            "parameters, most                          2000\n"
            "gradients, between steps                    30\n"
            "gradients, most                             31\n"
            "optimizer, between steps                   400\n"
            "optimizer, most                            401\n"
            "activations, most                           50\n"
            "sent by a ring                            1500\n");
}

TEST(PlanText, HasWhatWasMeasuredBesideIt) {
  TrainConfig config = config_of();
  config.micro_batches = 4;
  const StepBooks planned{.ledger = ledger_of(1000, 50), .sent = {.data = 1500}};
  const StepBooks found{.ledger = ledger_of(1001, 51), .sent = {.data = 175'000'000'000}};
  EXPECT_EQ(plan_text(config, 3, planned, &found),
            "A step on each of 3 ranks, weights in F64, gradients in F64, 4 micro-batches; bytes\n"
            "                                       planned          measured\n"
            "parameters, between steps                 1000              1001\n"
            "parameters, most                          2000              2002\n"
            "gradients, between steps                    30                30\n"
            "gradients, most                             31                31\n"
            "optimizer, between steps                   400               400\n"
            "optimizer, most                            401               401\n"
            "activations, most                           50                51\n"
            "sent by a ring                            1500      175000000000\n");
}

TEST(PlanText, OfAMeshSaysToWhom) {
  TrainConfig config = config_of();
  config.pp = config.tp = 2;
  const StepBooks planned{
      .ledger = ledger_of(1000, 50),
      .sent = {.data = 10, .tensor = 200, .stages = 3000, .tables = 40000, .sums = 8}};
  const std::string text = plan_text(config, 8, planned);
  EXPECT_NE(text.find("sent to data ranks                          10\n"
                      "sent to tensor ranks                       200\n"
                      "sent to other stages                     43000\n"
                      "sent by a ring                           43218\n"),
            std::string::npos)
      << text;
}

TEST(PlanText, OfShardsInGroupsSaysWhatGoesAcross) {
  TrainConfig config = config_of();
  StepBooks planned{.ledger = ledger_of(1000, 50), .sent = {.data = 1500, .across = 70}};
  const std::string alone = plan_text(config, 8, planned);
  EXPECT_NE(alone.find("sent within a group                       1500\n"
                       "sent across groups                          70\n"
                       "sent by a ring                            1570\n"),
            std::string::npos)
      << alone;
  config.tp = 2;
  planned.sent.tensor = 4;
  const std::string mesh = plan_text(config, 8, planned);
  EXPECT_NE(mesh.find("sent across groups                          70\n"
                      "sent to tensor ranks                         4\n"),
            std::string::npos)
      << mesh;
}

}  // namespace
}  // namespace aisc
