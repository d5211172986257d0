// What runs beside what, in virtual time, exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "03_data_parallel/bucketed_reduction.h"
#include "03_data_parallel/layered.h"
#include "common/comm/simulate.h"
#include "tests/support/exact_network.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

constexpr int kRanks = 4;

// Seconds of an all-reduce of so many F64 that all ranks begin at once.
double sum_seconds(std::int64_t count) {
  const PlanMaker maker = default_plans()[CommOp::AllReduce];
  return simulate(maker, call_of(CommOp::AllReduce, kRanks, 8 * count), kRanks, exact::kFlat)
      .seconds;
}

// Micro-batches of one sample.
ReadMicroBatch read_of(const Rank& rank, int micro_batches) {
  return [&rank, micro_batches](std::int64_t m) {
    return MicroBatch{
        .batch = {.tokens = Tensor({1, 1}, DType::F64, rank.device),
                  .targets = Tensor({1, 1}, DType::F64, rank.device)},
        .pass = {.micro_batch = static_cast<int>(m), .last_micro_batch = m + 1 == micro_batches}};
  };
}

// A bucket a layer, the last layer's first.
std::vector<Range> buckets_of(const toy::Toy& toy) {
  std::vector<Range> buckets;
  for (const FlatUnit& unit : toy.store->layout().units()) buckets.push_back(unit.range);
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

// Backward of layer i takes seconds[i]; each layer is a bucket of `count` elements. When the last
// bucket is over, and when backward is.
struct Times {
  double end, backward;
};
Times run(const std::vector<double>& seconds, std::int64_t count, bool overlap,
          const MicroBatchLoop& loop = one_after_another, int micro_batches = 1) {
  Times times{};
  LaunchOptions options{.ranks = kRanks, .network = exact::kFlat, .bind = false};
  launch(options, [&](const Rank& rank) {
    std::vector<toy::Size> layers;
    for (const double s : seconds) layers.push_back({.count = count, .backward = s});
    toy::Toy toy(rank, layers);
    BucketedReduction reduction(rank, toy.model, *toy.store, buckets_of(toy), overlap);
    LayerHook* const hooks[] = {&reduction};
    reduction.begin();
    loop(rank, toy.model, micro_batches, read_of(rank, micro_batches), 1, hooks);
    const double backward = rank.clock.now();
    reduction.finish();
    if (rank.world.rank() == 0) times = {rank.clock.now(), backward};
  });
  return times;
}

// Bucket k begins when it is complete and the one before it is over.
double expected_end(const std::vector<double>& ready, double sum) {
  double end = 0;
  for (const double seconds : ready) end = std::max(end, seconds) + sum;
  return end;
}

constexpr std::int64_t kCount = 1024;

TEST(Overlap, EachBucketTakesTheLongerOfComputingAndCommunicating) {
  const double sum = sum_seconds(kCount);
  for (const std::vector<double>& seconds :
       {std::vector<double>{sum / 4, sum / 4, sum / 4, sum / 4},  // communication decides
        std::vector<double>{4 * sum, 4 * sum, 4 * sum, 4 * sum},  // computing does
        std::vector<double>{sum / 2, 8 * sum, sum / 4, 2 * sum}}) {
    std::vector<double> ready;
    double backward = 0;
    for (std::size_t i = seconds.size(); i-- > 0;) ready.push_back(backward += seconds[i]);
    const Times times = run(seconds, kCount, true);
    EXPECT_EQ(times.backward, backward) << "launching a bucket takes no time";
    EXPECT_EQ(times.end, expected_end(ready, sum));
    EXPECT_EQ(run(seconds, kCount, false).end, backward + 4 * sum) << "the control: all at the end";
  }
}

// m micro-batches in layers: the first bucket is complete after m of one layer's, not after
// m - 1 whole backwards and one layer's.
TEST(Overlap, LayeredAccumulationOpensTheWindow) {
  const double sum = sum_seconds(kCount);
  constexpr int kMicroBatches = 4;
  const std::vector<double> seconds(4, sum / 2);
  const double backward = kMicroBatches * 4 * sum / 2;
  std::vector<double> plain, open;
  for (int i = 1; i <= 4; ++i) {
    plain.push_back((kMicroBatches - 1) * 4 * sum / 2 + i * sum / 2);
    open.push_back(i * kMicroBatches * sum / 2);
  }
  EXPECT_EQ(run(seconds, kCount, true, one_after_another, kMicroBatches).end,
            expected_end(plain, sum));
  EXPECT_EQ(run(seconds, kCount, true, layered, kMicroBatches).end, expected_end(open, sum));
  EXPECT_EQ(expected_end(open, sum), backward + sum) << "all is hidden but the last bucket";
  EXPECT_EQ(expected_end(plain, sum), backward + sum * 2.5);
}

// How many buckets are launched when a layer's backward begins.
class Watch final : public LayerHook {
 public:
  explicit Watch(const BucketedReduction& watched) : reduction_(watched) {}
  void before_backward(std::size_t layer, const Pass& pass, Saved& /*saved*/) override {
    seen.push_back(
        {static_cast<int>(layer), pass.micro_batch, static_cast<int>(reduction_.launched())});
  }
  std::vector<std::array<int, 3>> seen;

 private:
  const BucketedReduction& reduction_;
};

// In the loop, in real time: a layer's bucket is asked for before the layer below runs backward, in
// the last micro-batch, and in no other.
TEST(Overlap, IsAskedForBeforeTheLayerBelow) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    toy::Toy toy(rank, std::vector<toy::Size>(3, {.count = 1 << 16}));
    BucketedReduction reduction(rank, toy.model, *toy.store, buckets_of(toy));
    const auto seen = [&](const MicroBatchLoop& loop) {
      Watch watch(reduction);
      LayerHook* const hooks[] = {&watch, &reduction};
      reduction.begin();
      toy.store->clear_grads();
      loop(rank, toy.model, 2, read_of(rank, 2), 1, hooks);
      reduction.finish();
      return watch.seen;
    };
    using SeenByHooks = std::vector<std::array<int, 3>>;  // layer, micro-batch, launched
    EXPECT_EQ(seen(one_after_another),
              (SeenByHooks{{2, 0, 0}, {1, 0, 0}, {0, 0, 0}, {2, 1, 0}, {1, 1, 1}, {0, 1, 2}}));
    EXPECT_EQ(seen(layered),
              (SeenByHooks{{2, 0, 0}, {2, 1, 0}, {1, 0, 1}, {1, 1, 1}, {0, 0, 2}, {0, 1, 2}}));
  });
}

}  // namespace
}  // namespace aisc
