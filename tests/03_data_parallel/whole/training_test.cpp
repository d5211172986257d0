// Training with buckets, with and without overlap, by plain and by layered accumulation: whatever
// the ranks, the serial run.
#include <gtest/gtest.h>

#include "03_data_parallel/bucketed_reduction.h"
#include "03_data_parallel/layered.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

StepParts parts_of(const BucketOptions& buckets, const MicroBatchLoop& loop) {
  return {.reducer = bucketed(buckets), .loop = loop};
}

const BucketOptions kBuckets[] = {
    {.first_bytes = 64, .bytes = 3000, .overlap = true},  // many, cut inside of parameters
    {.first_bytes = 8000, .bytes = 1 << 20, .overlap = true},
    {.first_bytes = 64, .bytes = 3000, .overlap = false}};

class DataParallel : public AgainstSerial {};
INSTANTIATE_TEST_SUITE_P(Ranks, DataParallel, ::testing::ValuesIn(conformance::rank_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(DataParallel, IsTheSerialRun) {
  for (const BucketOptions& buckets : kBuckets) {
    expect_serial(odd_training(), parts_of(buckets, one_after_another));
    expect_serial(odd_training(several()), parts_of(buckets, layered));
  }
  expect_serial(odd_training(several()), parts_of(kBuckets[0], one_after_another));
}

TEST_P(DataParallel, IsTheSerialRunInVirtualTimeAndRecomputed) {
  for (const MicroBatchLoop& loop : {MicroBatchLoop(one_after_another), MicroBatchLoop(layered)}) {
    const StepParts parts = parts_of(kBuckets[0], loop);
    expect_serial_in_virtual_time(odd_training(several()), parts);
    expect_serial(odd_training(several(), "block"), parts);
  }
}

TEST_P(DataParallel, WaitsForWhatItReads) {
  expect_serial_when_late(odd_training(several()), parts_of(kBuckets[0], layered));
  expect_serial_when_late(odd_training(), parts_of(kBuckets[0], one_after_another));
  expect_serial_when_delayed(odd_training(), parts_of(kBuckets[1], one_after_another));
}

// One all-reduce a bucket and step, however many micro-batches, and beside them only the loss.
TEST(DataParallelTraffic, IsOneSumABucketAndStep) {
  constexpr int kSteps = 3;
  const auto text = some_text();
  for (const BucketOptions& buckets : kBuckets)
    for (const MicroBatchLoop& loop : {MicroBatchLoop(one_after_another), MicroBatchLoop(layered)})
      launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
        const TrainConfig config = odd_training(3);
        Trainer trainer(rank, config, parts_of(buckets, loop));
        const BatchSampler data(text, config.model.context, config.seed);
        for (int i = 0; i < kSteps; ++i) trainer.step(data);
        const std::int64_t bytes = 8 * trainer.parameters().layout().count();
        const std::int64_t rest = std::max<std::int64_t>(0, bytes - buckets.first_bytes);
        const std::int64_t sums = 1 + (rest + buckets.bytes - 1) / buckets.bytes;
        const CommStats stats = rank.world.stats();
        EXPECT_EQ(stats[CommOp::AllReduce].calls, kSteps * (sums + 1));
        EXPECT_EQ(stats[CommOp::AllReduce].payload_bytes, kSteps * (bytes + 8));
        for (const CommOp op : {CommOp::AllGather, CommOp::Broadcast, CommOp::Exchange})
          EXPECT_EQ(stats[op].calls, 0) << "nothing else is sent";
      });
}

// Weights, gradients, AdamW's two moments and, of BF16, the master copies: all of them, whatever
// the number of ranks. This is what module 04 ends.
TEST(DataParallelMemory, IsSixteenBytesAParameterOnEveryRank) {
  const auto text = some_text();
  for (const int ranks : {1, 2, 4})
    launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
      const TrainConfig config = odd_training(1, "none", DType::BF16);
      Trainer trainer(rank, config, parts_of(kBuckets[0], one_after_another));
      trainer.step(BatchSampler(text, config.model.context, config.seed));
      const Ledger ledger = rank.device.ledger();
      const std::int64_t elements = trainer.parameters().layout().count();
      const std::int64_t numbers = trainer.parameters().parameter_count();
      EXPECT_EQ(ledger[Purpose::Parameters].peak_bytes, 2 * elements);
      EXPECT_EQ(ledger[Purpose::Gradients].peak_bytes, 2 * elements);
      EXPECT_EQ(ledger[Purpose::Optimizer].peak_bytes, 12 * numbers);
    });
}

// A layer norm looks at one token, so that nothing but rounding depends on the number of ranks; of
// micro-batches the same. (Batch normalization, whose statistics are a rank's, would.)
TEST(DataParallelLosses, DoNotDependOnTheRanks) {
  const auto losses = [](int ranks) {
    return run_layout<CheckedTrainer>({.ranks = ranks}, odd_training(), 5,
                                      parts_of(kBuckets[0], one_after_another))
        .back()
        .losses;
  };
  const std::vector<double> serial = losses(1);
  for (const int ranks : {2, 3, 7}) {
    const std::vector<double> others = losses(ranks);
    for (std::size_t i = 0; i < serial.size(); ++i)
      EXPECT_NEAR(others[i], serial[i], 1e-12) << ranks << " ranks, step " << i;
  }
}

}  // namespace
}  // namespace aisc
