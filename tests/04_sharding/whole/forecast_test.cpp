// What was told before a step is what it holds and sends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "03_data_parallel/layered.h"
#include "tests/04_sharding/whole/forecast.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

void expect_forecast(int ranks, std::int64_t micro_batches, const ShardOptions& options,
                     ForecastOptions::Loop loop) {
  SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches, stage {}, prefetch {}, reuse {}, {}", ranks,
                           micro_batches, options.stage, options.gather.prefetch,
                           options.gather.reuse,
                           loop == ForecastOptions::Loop::Layered ? "layered" : "plain"));
  TrainConfig config;
  config.model = odd_config(DType::BF16);
  config.gradient_dtype = DType::F32;
  config.batch = 12;
  config.micro_batches = micro_batches;
  const auto text = some_text();
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    StepParts parts = sharded(options);
    if (loop == ForecastOptions::Loop::Layered) parts.loop = layered;
    Trainer trainer(rank, config, parts);
    const ForecastOptions of{.ranks = ranks,
                             .micro_batches = micro_batches,
                             .loop = loop,
                             .values = DType::BF16,
                             .gradients = DType::F32};
    const Forecast told = forecast(trainer.model(), options, of);
    const BatchSampler data(text, config.model.context, config.seed);
    trainer.step(data);
    const CommStats before = rank.world.stats();
    EXPECT_EQ(rank.device.ledger()[Purpose::Parameters].live_bytes, told.values_at_rest);
    EXPECT_EQ(rank.device.ledger()[Purpose::Gradients].live_bytes, told.gradients_at_rest);
    rank.device.reset_peaks();
    trainer.step(data);
    EXPECT_EQ(rank.device.ledger()[Purpose::Parameters].peak_bytes, told.values_peak);
    EXPECT_EQ(rank.device.ledger()[Purpose::Gradients].peak_bytes, told.gradients_peak);
    const CommStats after = rank.world.stats();
    const auto payload = [&](CommOp op) {
      return after[op].payload_bytes - before[op].payload_bytes;
    };
    EXPECT_EQ(payload(CommOp::AllGather) * ranks, 2 * told.gathered) << "BF16: 2 bytes";
    EXPECT_EQ(payload(CommOp::ReduceScatter), 4 * told.scattered) << "F32: 4 bytes";
    EXPECT_DOUBLE_EQ(told.sent_bytes(of), (2.0 * static_cast<double>(told.gathered) +
                                           4.0 * static_cast<double>(told.scattered)) *
                                              (ranks - 1) / ranks);
  });
}

TEST(Forecast, IsWhatAStepHoldsAndSends) {
  using Loop = ForecastOptions::Loop;
  for (const int ranks : {1, 3})
    for (const std::int64_t micro_batches : {1, 3})
      for (const Loop loop : {Loop::OneAfterAnother, Loop::Layered}) {
        for (const int stage : {1, 2, 3})
          expect_forecast(ranks, micro_batches, {.stage = stage}, loop);
        for (const GatherOptions& gather :
             {GatherOptions{.prefetch = 0}, GatherOptions{.prefetch = 2, .reuse = 2000},
              GatherOptions{.reuse = GatherOptions::kAll}, GatherOptions{.persist = 600}})
          expect_forecast(ranks, micro_batches, {.stage = 3, .gather = gather}, loop);
      }
}

}  // namespace
}  // namespace aisc
