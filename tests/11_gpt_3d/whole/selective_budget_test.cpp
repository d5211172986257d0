// Recomputation of cores within a budget, where micro-batches of a pipeline are in flight: never
// more than the budget on top of what is kept without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "05_pipeline/pipelined.h"
#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/selective.h"
#include "07_sequence_parallel/stored_attention.h"
#include "tests/support/error_says.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

constexpr int kStages = 3;
constexpr std::int64_t kMicroBatchesOfARun = 6;

TrainConfig budget_config(std::int64_t keep_bytes) {
  TrainConfig config = odd_training(kStages, 0, 2 * kMicroBatchesOfARun, kMicroBatchesOfARun, 6);
  config.recompute = Recompute::parse("core");
  config.recompute.keep_bytes = keep_bytes;
  return config;
}

struct OfARank {
  std::int64_t most_bytes = 0;  // of activations in a step
  std::int64_t attentions = 0;  // forwards and backwards of cores
};

std::vector<OfARank> run_with(std::int64_t keep_bytes) {
  std::vector<OfARank> all(kStages);
  std::mutex mutex;
  const std::vector<std::uint8_t> text = some_text();
  launch({.ranks = kStages, .bind = false}, [&](const Rank& rank) {
    const TrainConfig config = budget_config(keep_bytes);
    Trainer trainer(rank, config,
                    pipelined({.schedule = "1f1b"}, selective_recomputation(stored_attention())));
    const BatchSampler data(text, config.model.context, config.seed);
    trainer.step(data);
    rank.device.reset_peaks();
    rank.trace.record(true);
    trainer.step(data);
    OfARank its{.most_bytes = rank.device.ledger()[Purpose::Activations].peak_bytes};
    for (const TraceEvent& event : rank.trace.events()) its.attentions += event.part == "attention";
    const std::lock_guard lock(mutex);
    all[static_cast<std::size_t>(rank.world.rank())] = its;
  });
  return all;
}

// Of 1F1B the first rank has 3 micro-batches in flight, of two cores each. A core keeps 3 s b h
// numbers of queries, keys and values, and a s^2 b probabilities, twice, with their mask; in place
// of its input, of 3 s b h numbers, too.
TEST(SelectiveBudget, IsNeverExceeded) {
  const GptConfig model = budget_config(0).model;
  const std::int64_t s = model.context, b = 2;
  const std::int64_t scores = model.heads * s * s * b * (8 + 1 + 8);
  const std::int64_t core = s * b * 3 * model.width * 8 + scores;
  // What of stages' messages is here at a peak is chance; less than a core's scores.
  const std::int64_t messages = kStages * s * b * model.width * 8;
  ASSERT_LT(messages, scores);
  const std::vector<OfARank> none = run_with(0);
  std::vector<OfARank> less = none;
  for (const std::int64_t cores : {1, 2, 3, 6}) {
    const std::vector<OfARank> found = run_with(cores * core);
    for (int r = 0; r < kStages; ++r) {
      const auto rank = static_cast<std::size_t>(r);
      EXPECT_LE(found[rank].most_bytes, none[rank].most_bytes + cores * scores + messages)
          << "rank " << r;
      EXPECT_LE(found[rank].attentions, less[rank].attentions) << "rank " << r;
    }
    less = found;
  }
  EXPECT_GT(less[0].most_bytes, none[0].most_bytes + 4 * scores) << "room is used";
  // Two cores a micro-batch: a forward, a forward again, a backward. All are kept in the end.
  EXPECT_EQ(none[0].attentions, 3 * 2 * kMicroBatchesOfARun);
  EXPECT_EQ(less[0].attentions, 2 * 2 * kMicroBatchesOfARun) << "3 micro-batches of 2 cores fit";
}

// 16 rows over 3 tensor ranks: those of the last stage would keep different bytes of logits, and
// one of them would run again alone.
TEST(SelectiveBudget, OfStagesIsOfRanksThatKeepTheSame) {
  const TrainConfig config = odd_training(2, 3, 4, 2);
  const StepParts parts = tensor_parallel(
      pipelined({.schedule = "1f1b", .again = Again::Early, .keep_bytes = 1 << 20}));
  EXPECT_TRUE(error_says([&] { run_layout({.ranks = 6}, config, 1, parts); },
                         {"pipeline: a budget for what is kept", "16 rows over 3 tensor ranks"}));
}

// What is kept and what is made again have the same bits.
TEST(SelectiveBudget, ChangesNoBit) {
  const auto left = [](std::int64_t keep_bytes) {
    return run_layout({.ranks = kStages}, budget_config(keep_bytes), 2,
                      pipelined({.schedule = "1f1b"}, selective_recomputation(stored_attention())))
        .back();
  };
  const RunRecord none = left(0), some = left(30'000);
  EXPECT_EQ(none.losses, some.losses);
  EXPECT_EQ(none.norms, some.norms);
  EXPECT_TRUE(same_run(none, some, 0));
}

}  // namespace
}  // namespace aisc
