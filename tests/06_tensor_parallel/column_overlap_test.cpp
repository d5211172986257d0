// Backward of the column-parallel layer: the sum of dx runs beside the product of dW.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "06_tensor_parallel/column_parallel.h"
#include "tests/06_tensor_parallel/by_hand_machine.h"
#include "tests/06_tensor_parallel/event_log.h"
#include "tests/06_tensor_parallel/split_layers.h"

namespace aisc {
namespace {

using split::EventLog;

constexpr std::int64_t kRows = 8, kIn = 16, kOwn = 64;  // kOwn: outputs of a rank

// Runs f(rank, layer, saved, dy) where forward has been.
template <class F>
void after_forward(const Rank& rank, const F& f) {
  const int t = rank.world.size();
  split::Owned owned(
      rank, std::make_unique<ColumnParallelLinear>(rank, rank.world, "layer", kIn, kOwn * t));
  Saved saved;
  saved.push(Tensor::zeros({kRows, kIn}, DType::F64, rank.device));
  f(*owned.layer, saved, Tensor::zeros({kRows, kOwn}, DType::F64, rank.device));
}

// Without the small sum for the bias, which may be anywhere.
enum class ProductOfDW { AtOnce, Deferred };

EventLog events_of(int ranks, ProductOfDW product) {
  std::vector<EventLog> logs(static_cast<std::size_t>(ranks));
  LaunchOptions options{.ranks = ranks, .bind = false};
  options.internals.decorate = [&](std::unique_ptr<Communicator> inner) {
    EventLog& log = logs[static_cast<std::size_t>(inner->rank())];
    return std::make_unique<split::LoggedComm>(std::move(inner), log);
  };
  launch(options, [&](const Rank& rank) {
    after_forward(rank, [&](Layer& layer, Saved& saved, Tensor dy) {
      EventLog& log = logs[static_cast<std::size_t>(rank.world.rank())];
      DeferredGrads deferred;
      split::listen(rank.device, log);
      layer.backward(std::move(dy), saved,
                     {.deferred = product == ProductOfDW::Deferred ? &deferred : nullptr});
      rank.device.listen({});
    });
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

split::Times times_on(const Machine& machine, int ranks) {
  split::Times times;
  launch(on_machine(machine, ranks), [&](const Rank& rank) {
    after_forward(rank, [&](Layer& layer, Saved& saved, Tensor dy) {
      const split::Times own =
          split::times_of(machine, rank, [&] { layer.backward(std::move(dy), saved, {}); });
      if (rank.world.rank() == 0) times = own;
    });
  });
  return times;
}

TEST(ColumnParallelOverlap, AFastSumIsHiddenByTheProductOfDW) {
  for (const int ranks : {2, 3, 4}) {
    const Machine machine = split::by_hand_machine(split::kFastLink);
    const split::Times times = times_on(machine, ranks);
    ASSERT_EQ(times.operations.size(), 3u) << "dx, db and dW";
    const double sum = split::all_reduce_seconds(machine, ranks, kRows * kIn);
    ASSERT_LT(sum, times.operations.back());
    EXPECT_EQ(times.all, times.computing())
        << ranks << " ranks: seconds of backward; the sum takes " << sum
        << " s, and all of it fits beside dW";
  }
}

TEST(ColumnParallelOverlap, OfASlowSumOnlyWhatIsLongerThanDWIsExposed) {
  for (const int ranks : {2, 3, 4}) {
    const Machine machine = split::by_hand_machine(split::kSlowLink);
    const split::Times times = times_on(machine, ranks);
    ASSERT_EQ(times.operations.size(), 3u) << "dx, db and dW";
    const double sum = split::all_reduce_seconds(machine, ranks, kRows * kIn);
    ASSERT_GT(sum, times.operations[1] + times.operations[2]);
    EXPECT_EQ(times.all, times.operations[0] + sum)
        << ranks << " ranks: seconds of backward: dx, and then its sum, which takes " << sum
        << " s; db and dW run beside it";
  }
}

}  // namespace
}  // namespace aisc
