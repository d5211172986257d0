// Batches that are made while training runs.
#include "03_data_parallel/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "common/comm/launch.h"
#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/serial_run.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(BoundedQueue, HoldsNoMoreThanItMay) {
  BoundedQueue<int> queue(2);
  std::atomic<int> pushed = 0;
  std::thread maker([&] {
    for (int i = 0; i < 5; ++i) {
      queue.push(i);
      ++pushed;
    }
    queue.close();
  });
  queue.wait_until_full();
  EXPECT_LE(pushed, 2);
  std::vector<int> taken;
  while (const auto value = queue.pop()) taken.push_back(*value);
  maker.join();
  EXPECT_THAT(taken, ElementsAre(0, 1, 2, 3, 4));
}

TEST(BoundedQueue, ClosedGivesUp) {
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.push(1));
  std::thread maker([&] { EXPECT_FALSE(queue.push(2)) << "it is full, and then closed"; });
  queue.close();
  maker.join();
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.stalls(), 0);
}

TEST(BoundedQueue, CountsHowOftenItWasEmpty) {
  BoundedQueue<int> queue(1);
  std::thread taker([&] { EXPECT_EQ(queue.pop(), 7); });
  while (queue.stalls() == 0) std::this_thread::yield();
  queue.push(7);
  taker.join();
  EXPECT_EQ(queue.stalls(), 1);
}

TrainConfig config_of(std::int64_t micro_batches = 3) {
  TrainConfig config = odd_training(micro_batches);
  config.batch = 15;
  return config;
}

// Micro-batch m of the batch that begins with sample `batch_begin`.
Range micro_batch(const Rank& rank, const TrainConfig& c, std::int64_t batch_begin,
                  std::int64_t m) {
  const Range part =
      share_of(share_of(c.batch, rank.world.rank(), rank.world.size()), m, c.micro_batches);
  return {batch_begin + part.begin, batch_begin + part.end};
}

void expect_drawn(const Batch& batch, const BatchSampler& data, const Range& samples,
                  Device& device) {
  const Batch expected = data.batch(device, samples.begin, samples.count());
  EXPECT_TRUE(same_bits(batch.tokens, expected.tokens)) << "sample " << samples.begin;
  EXPECT_TRUE(same_bits(batch.targets, expected.targets)) << "sample " << samples.begin;
}

TEST(Loader, GivesWhatTheSamplerDraws) {
  const auto text = some_text();
  const TrainConfig config = config_of();
  for (const std::int64_t ahead : {1, 4})
    launch({.ranks = 3, .bind = false}, [&](const Rank& rank) {
      const BatchSampler data(text, config.model.context, 3);
      Loader loader(rank, config, ahead);
      for (const std::int64_t batch_begin : {0, 15, 30, 7, 22})  // the fourth goes on elsewhere
        for (std::int64_t m = 0; m < config.micro_batches; ++m) {
          const Range samples = micro_batch(rank, config, batch_begin, m);
          expect_drawn(loader.read(data, samples.begin, samples.count()), data, samples,
                       rank.device);
        }
    });
}

// f(loader, data) with a loader of two micro-batches ahead, on one rank.
template <class F>
void with_loader(const TokenView& tokens, const F& f) {
  launch({}, [&](const Rank& rank) {
    const BatchSampler data(tokens, config_of().model.context, 3);
    Loader loader(rank, config_of(), 2);
    f(loader, data);
  });
}

TEST(Loader, EndsBeforeItsBatchesAreTaken) {
  with_loader(some_text(), [](const Loader& /*never_asked*/, const BatchSampler&) {});
  with_loader(some_text(),
              [](Loader& loader, const BatchSampler& data) { loader.read(data, 0, 5); });
}

TEST(Loader, ThatIsAheadStallsNobody) {
  with_loader(some_text(), [](Loader& loader, const BatchSampler& data) {
    loader.read(data, 0, 5);
    const std::int64_t first = loader.stalls();
    for (std::int64_t m = 1; m < 9; ++m) {
      loader.wait_until_full();  // it is fast
      loader.read(data, 5 * m, 5);
    }
    EXPECT_EQ(loader.stalls(), first);
  });
}

TEST(Loader, SaysWhatIsWrong) {
  with_loader(some_text(), [](Loader& loader, const BatchSampler& data) {
    EXPECT_TRUE(error_says([&] { loader.read(data, 0, 4); }, {"4 samples", "micro-batch 0 has 5"}));
  });
  launch({}, [](const Rank& rank) {
    EXPECT_TRUE(error_says([&] { Loader(rank, config_of(), 0); }, {"0 micro-batches ahead"}));
  });
}

// A file of tokens that somebody cuts while it is in use: the thread's error is the reader's.
TEST(Loader, HandsOverWhatGoesWrongInItsThread) {
  const TemporaryFolder folder;
  const std::string path = folder.path("tokens");
  constexpr std::int64_t kTokens = 1 << 16;
  write_file(path, std::string(2 * kTokens, '\1'));
  const ReadableFile file(path);
  std::filesystem::resize_file(path, 8);
  with_loader(TokenView(file, 0, kTokens), [](Loader& loader, const BatchSampler& data) {
    EXPECT_TRUE(error_says([&] { loader.read(data, 0, 5); }, {"it was cut while it was in use"}));
  });
}

// The same numbers, whoever made the batches when.
TEST(Loader, TrainsAsWithoutIt) {
  for (const int ranks : {1, 2})
    for (const std::int64_t micro_batches : {1, 3}) {
      const TrainConfig config = config_of(micro_batches);
      const auto plain = run_layout({.ranks = ranks}, config, 3);
      const auto loaded = run_layout({.ranks = ranks}, config, 3, loaded_ahead(2));
      EXPECT_TRUE(same_steps(plain, loaded, 0)) << ranks << " ranks, " << micro_batches;
    }
}

// Numbers of a machine with a loader of .25 and a step of 1: only the first step waits.
TEST(Stalls, AreNoneBehindTheFirstWhereLoadingIsFaster) {
  const std::vector<double> load(6, .25), step(6, 1);
  EXPECT_THAT(stalls(load, step, 2), ElementsAre(.25, 0, 0, 0, 0, 0));
  EXPECT_THAT(stalls(load, step, 0), Each(.25)) << "without a queue each step waits";
}

TEST(Stalls, AreTheDifferenceWhereLoadingIsSlower) {
  const std::vector<double> load(6, 1.5), step(6, 1);
  EXPECT_THAT(stalls(load, step, 1), ElementsAre(1.5, .5, .5, .5, .5, .5));
  EXPECT_THAT(stalls(load, step, 8), ElementsAre(1.5, .5, .5, .5, .5, .5))
      << "a longer queue does not help a loader that is too slow";
}

// One batch takes as long as four steps: as many batches ahead hide it.
TEST(Stalls, OfASlowBatchAreHiddenByTheQueue) {
  const std::vector<double> load{.25, .25, .25, .25, .25, 4, .25}, step(7, 1);
  EXPECT_EQ(stalls(load, step, 4)[5], 0);
  EXPECT_EQ(stalls(load, step, 1)[5], 2);
}

}  // namespace
}  // namespace aisc
