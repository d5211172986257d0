// The hook that launches buckets, and the end that waits for them, each by itself.
#include "03_data_parallel/bucketed_reduction.h"

#include <gtest/gtest.h>

#include "common/comm/launch.h"
#include "tests/support/late_comm.h"
#include "tests/support/numbers.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

// Three layers; units of 128, 64 and 192 elements, with padding: [0, 128), [128, 192), [192, 384).
std::vector<toy::Size> three_layers() { return {{.count = 100}, {.count = 64}, {.count = 130}}; }

std::int64_t all_reduces(const Rank& rank) { return rank.world.stats()[CommOp::AllReduce].calls; }

// The gradients that `toy` holds are the sums over the ranks.
::testing::AssertionResult are_sums(const toy::Toy& toy,
                                    const std::vector<KnownMistake>& mistakes = {}) {
  const int ranks = toy.rank.world.size();
  return numbers_are(std::to_string(ranks) + " ranks, rank " +
                         std::to_string(toy.rank.world.rank()) + ": gradients",
                     from_doubles(toy.without_padding(to_doubles(toy.store->grads())), {294},
                                  DType::F64, toy.rank.device),
                     toy.without_padding(toy.sums(ranks)), mistakes);
}

// Layer by layer, as backward does; how many buckets were launched after each, and when all are
// over the sums.
enum class Overlap { On, Off };
void expect_launches(const std::vector<toy::Size>& layers, const std::vector<Range>& buckets,
                     const std::vector<int>& after_each, const std::string& why,
                     Overlap overlap = Overlap::On) {
  launch(late(2), [&](const Rank& rank) {
    toy::Toy toy(rank, layers);
    {
      ops::fill(toy.store->grads(), 7);  // those of an earlier step
      toy.store->clear_grads();
      BucketedReduction reduction(rank, toy.model, *toy.store, buckets, overlap == Overlap::On);
      reduction.begin();
      std::vector<int> launched;
      for (std::size_t layer = layers.size(); layer-- > 0;) {
        toy.backward(layer);
        reduction.complete(layer);
        launched.push_back(static_cast<int>(all_reduces(rank)));
      }
      EXPECT_EQ(launched, after_each) << "all-reduces after each layer's backward: " << why;
      while (overlap == Overlap::Off && reduction.launched() < buckets.size()) reduction.launch();
    }
    EXPECT_TRUE(are_sums(toy)) << "7s: nobody completed the gradients of an unused layer.";
  });
}

TEST(Launch, ABucketForEachLayerByHand) {
  expect_launches(three_layers(), {{192, 384}, {128, 192}, {0, 128}}, {1, 2, 3},
                  "each layer's own bucket is complete after its backward");
}

TEST(Launch, WaitsForAllUnitsOfABucket) {
  expect_launches(three_layers(), {{300, 384}, {150, 300}, {0, 150}}, {1, 2, 3},
                  "the second bucket has elements of the last layer and of the middle one");
  expect_launches(three_layers(), {{384 - 10, 384}, {100, 374}, {0, 100}}, {1, 1, 3},
                  "the second bucket has elements of all three layers");
  expect_launches(three_layers(), {{0, 384}}, {0, 0, 1}, "one bucket has all layers");
}

TEST(Launch, SeveralAtOnceWhereSeveralAreComplete) {
  expect_launches(three_layers(), {{320, 384}, {256, 320}, {192, 256}, {64, 192}, {0, 64}},
                  {3, 3, 5}, "three buckets lie in the last layer");
}

TEST(Launch, ATiedTableComesLast) {
  std::vector<toy::Size> tied = three_layers();
  tied[2].borrows_first = true;
  expect_launches(tied, {{192, 384}, {128, 192}, {0, 128}}, {1, 2, 3},
                  "the first layer's table gets its second contribution from the first layer");
}

TEST(Launch, UnusedParametersAreZero) {
  std::vector<toy::Size> layers = three_layers();
  layers[1].unused = true;
  expect_launches(layers, {{192, 384}, {128, 192}, {0, 128}}, {1, 2, 3},
                  "a layer without a gradient has one of zeros");
}

// With overlap off finish() launches: gradients must be whole by then all the same.
TEST(Launch, UnusedParametersAreZeroWithoutOverlap) {
  std::vector<toy::Size> layers = three_layers();
  layers[1].unused = true;
  expect_launches(layers, {{192, 384}, {0, 192}}, {0, 0, 0},
                  "overlap is off: nothing is sent before finish()", Overlap::Off);
}

TEST(Launch, NothingWithoutOverlap) {
  expect_launches(three_layers(), {{192, 384}, {0, 192}}, {0, 0, 0},
                  "overlap is off: nothing is sent before finish()", Overlap::Off);
}

// As above without complete(): gradients are there, `launched` buckets are on their way.
void expect_finished(int ranks, std::size_t launched) {
  launch(late(ranks), [&](const Rank& rank) {
    toy::Toy toy(rank, three_layers());
    toy.write_gradients();
    const std::vector<double> own = toy.without_padding(to_doubles(toy.store->grads()));
    toy.store->complete_grads();
    BucketedReduction reduction(rank, toy.model, *toy.store, {{300, 384}, {150, 300}, {0, 150}});
    reduction.begin();
    for (std::size_t i = 0; i < launched; ++i) reduction.launch();
    reduction.finish();
    std::vector<KnownMistake> mistakes;
    if (ranks > 1) mistakes = {{"no bucket was launched", own}};
    EXPECT_TRUE(are_sums(toy, mistakes))
        << launched << " of 3 buckets were launched. NaN: it was launched and never waited for.";
    EXPECT_EQ(all_reduces(rank), 3) << "each bucket is summed once";
  });
}

TEST(Finish, WaitsForWhatIsOnItsWay) {
  for (const int ranks : {1, 2, 3}) expect_finished(ranks, 3);
}

TEST(Finish, LaunchesWhatIsLeft) {
  for (const int ranks : {1, 2, 4})
    for (const std::size_t launched : {0, 1, 2}) expect_finished(ranks, launched);
}

}  // namespace
}  // namespace aisc
