// Backward of the column-parallel layer: the sum of dx runs beside the product of dW.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "06_tensor_parallel/column_parallel.h"
#include "tests/06_tensor_parallel/by_hand_machine.h"
#include "tests/06_tensor_parallel/event_log.h"
#include "tests/06_tensor_parallel/split_layers.h"

namespace aisc {
namespace {

using split::EventLog;

constexpr std::int64_t kRows = 8, kIn = 16, kOwn = 64;  // kOwn: outputs of a rank

std::unique_ptr<Layer> make_layer(const Rank& rank) {
  return std::make_unique<ColumnParallelLinear>(rank, rank.world, "layer", kIn,
                                                kOwn * rank.world.size());
}

enum class ProductOfDW { AtOnce, Deferred };

// Without the small sum for the bias, which may be anywhere.
EventLog events_of(int ranks, ProductOfDW product) {
  auto logs = split::logs_of(ranks, [&](const Rank& rank, EventLog& log) {
    split::Owned owned(rank, make_layer(rank));
    Saved saved;
    saved.push(Tensor::zeros({kRows, kIn}, DType::F64, rank.device));
    Tensor dy = Tensor::zeros({kRows, kOwn}, DType::F64, rank.device);
    DeferredGrads deferred;
    split::listen(rank.device, log);
    owned.layer->backward(std::move(dy), saved,
                          {.deferred = product == ProductOfDW::Deferred ? &deferred : nullptr});
    rank.device.listen({});
  });
  for (const EventLog& log : logs)
    EXPECT_EQ(log, logs[0]) << "a rank does other things than rank 0";
  std::erase(logs[0], "add_bias_backward");
  return logs[0];
}

// dx has 8 rows of 16 columns.
TEST(ColumnParallelOverlap, TheSumBeginsBeforeTheProductOfDWAndIsWaitedForAfterIt) {
  EXPECT_EQ(events_of(2, ProductOfDW::AtOnce),
            (EventLog{"matmul", "all_reduce of 128 begins", "matmul", "all_reduce of 128 is over"}))
      << "first dx = dy W; then its sum, and beside it dW = dy^T x, which does not need the sum";
}

TEST(ColumnParallelOverlap, NothingRunsBesideTheSumWhereDWIsDeferred) {
  EXPECT_EQ(events_of(2, ProductOfDW::Deferred),
            (EventLog{"matmul", "all_reduce of 128 begins", "all_reduce of 128 is over"}))
      << "dW is computed later, with deferred.run_all()";
}

// A fast one fits beside db and dW; of a slow one what is longer than these is exposed.
TEST(ColumnParallelOverlap, TheSumIsHiddenByTheProductOfDWAsFarAsItLasts) {
  for (const int ranks : {2, 3, 4})
    for (const double link : {split::kFastLink, split::kSlowLink}) {
      const Machine machine = split::by_hand_machine(link);
      const split::Times times = split::backward_times(machine, ranks, {kRows, kIn}, make_layer);
      ASSERT_EQ(times.operations.size(), 3u) << "dx, db and dW";
      const double sum = split::all_reduce_seconds(machine, ranks, kRows * kIn);
      const double beside = times.operations[1] + times.operations[2];
      ASSERT_EQ(sum < times.operations[2], link == split::kFastLink);
      ASSERT_EQ(sum > beside, link == split::kSlowLink);
      EXPECT_EQ(times.all, times.operations[0] + std::max(sum, beside))
          << ranks << " ranks: seconds of backward: dx, and then its sum, which takes " << sum
          << " s, and beside it db and dW, which take " << beside;
    }
}

}  // namespace
}  // namespace aisc
