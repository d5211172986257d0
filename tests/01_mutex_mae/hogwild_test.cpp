// Hogwild: to the last bit what one thread does alone, and, with several threads, what can be said
// for certain of a way to learn that depends on who comes first.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "01_mutex_mae/descent.h"
#include "tests/01_mutex_mae/meeting.h"
#include "tests/01_mutex_mae/serial_descent.h"

namespace aisc {
namespace {

using Order = std::vector<std::int64_t>;

Descent hogwild(const Problem& problem, int threads, const DescentOptions& options) {
  Team team(threads);
  return train_hogwild(problem, team, options);
}

// With a learning rate of 1/8 all weights are multiples of 1/8, and exact.
constexpr DescentOptions kExact{.epochs = 3, .learning_rate = 0.125};

void expect_serial(const Problem& problem, int threads) {
  expect_descent(hogwild(problem, threads, kExact), serial_descent(problem, kExact, 1), 0,
                 std::to_string(problem.N) + " samples, " + std::to_string(threads) + " threads");
}

TEST(Hogwild, OneThreadIsSerialDescentToTheLastBit) {
  const std::int64_t M = drawn("features of Hogwild", 2, 9);
  for (const std::int64_t N :
       {std::int64_t{1}, std::int64_t{2}, drawn("samples of Hogwild", 50, 300)})
    for (const std::int64_t features : {std::int64_t{1}, M})
      expect_serial(exact_problem(N, features, test_seed()), 1);
}

TEST(Hogwild, ThreadsMayBeMoreThanSamples) {
  expect_serial(exact_problem(1, 3, test_seed()), 4);
  Problem problem = exact_problem(3, 2, test_seed());
  const Descent descent = hogwild(problem, 5, kExact);
  EXPECT_EQ(descent.loss.size(), 4u);
  EXPECT_NEAR(descent.loss.back(), serial_loss(problem, descent.weights), 1e-12);
}

TEST(Hogwild, WithoutSamplesOrEpochsTheWeightsStay) {
  expect_weights_stay_without_samples_or_epochs(train_hogwild);
}

TEST(Hogwild, EachThreadGoesThroughItsChunkOfEachEpoch) {
  const std::int64_t N = drawn("samples of Hogwild, chunks", 40, 200), epochs = 3;
  Problem problem = exact_problem(N, 2, test_seed());
  for (const int threads : {1, 2, 3, 5}) {
    Team team(threads);
    const std::function<int()> number = number_in(team);
    std::vector<Order> seen(static_cast<std::size_t>(threads));
    bool strangers = false;
    std::mutex mutex;
    problem.watch = [&](std::int64_t i) {
      const std::lock_guard lock(mutex);
      const int thread = number();
      if (thread < 0) strangers = true;
      if (thread >= 0) seen[static_cast<std::size_t>(thread)].push_back(i);
    };
    train_hogwild(problem, team, {.seed = 4, .epochs = epochs});
    EXPECT_FALSE(strangers) << "threads that are not of the team asked for samples";
    for (int t = 0; t < threads; ++t) {
      Order expected;
      for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
        const Order order = order_of(N, 4, epoch);
        expected.insert(expected.end(), order.begin() + N * t / threads,
                        order.begin() + N * (t + 1) / threads);
      }
      const Order& found = seen[static_cast<std::size_t>(t)];
      const std::string whose = "thread " + std::to_string(t) + " of " + std::to_string(threads);
      ASSERT_EQ(found.size(), expected.size())
          << "samples that " << whose << " asked for in " << epochs << " epochs of " << N;
      for (std::size_t k = 0; k < expected.size(); ++k)
        ASSERT_EQ(found[k], expected[k])
            << "sample number " << k << " that " << whose << " asked for, of " << expected.size()
            << " in " << epochs << " epochs: it goes through chunk " << t
            << " of each epoch's order, each sample once";
    }
  }
}

// At its first sample each thread waits until every other is at its own.
TEST(Hogwild, NoThreadWaitsForAnotherWithinAnEpoch) {
  for (const int threads : {2, 4}) {
    Problem problem = exact_problem(drawn("samples of Hogwild, at once", 40, 90), 2, 1);
    Gathering meeting(threads);
    problem.watch = [&](std::int64_t) { meeting.arrive(); };
    hogwild(problem, threads, {.epochs = 1});
    ASSERT_EQ(meeting.present(), threads)
        << "of " << threads << " threads only " << meeting.present()
        << " were inside a sample at once: is a lock held, or does one thread do it all?";
  }
}

// Four samples for two threads: `first` and `second` are thread 0's, `third` and `fourth` thread
// 1's. What thread 1 learns from the third, thread 0 must not undo when it has finished the first,
// for which it had loaded the weights before. The first changes the odd weights, the third the even
// ones, the others none; each thread stores a last time when both were changed.
TEST(Hogwild, KeepsWhatOthersHaveStoredMeanwhile) {
  constexpr std::int64_t M = 64;
  const Order order = order_of(4, 1, 0);
  const std::int64_t first = order[0], second = order[1], third = order[2], fourth = order[3];
  Problem problem = blank_problem(4, M);
  for (std::int64_t j = 0; j < M; ++j)
    problem.x[static_cast<std::size_t>((j % 2 == 0 ? third : first) * M + j)] = 1;
  // Their residuals are about -100 and 100, whatever the bias has become meanwhile.
  problem.y[static_cast<std::size_t>(first)] = 100;
  problem.y[static_cast<std::size_t>(third)] = -100;
  Event first_has_loaded, third_is_stored, first_is_stored;
  std::atomic<bool> in_time = true;
  problem.watch = [&](std::int64_t i) {
    if (i == first) first_has_loaded.tell();
    if (i == second) first_is_stored.tell();
    if (i == fourth) third_is_stored.tell();
    if ((i == first && !third_is_stored.wait()) || (i == third && !first_has_loaded.wait()) ||
        (i == fourth && !first_is_stored.wait()))
      in_time = false;
  };
  const Descent descent = hogwild(problem, 2, {.epochs = 1, .learning_rate = 0.125});
  ASSERT_TRUE(in_time) << "no thread finished a sample while the other one was inside a sample";
  for (std::int64_t j = 0; j < M; ++j)
    ASSERT_EQ(descent.weights[static_cast<std::size_t>(j)], j % 2 == 0 ? -0.125 : 0.125)
        << "weight " << j << ": thread " << (j % 2 == 0 ? 1 : 0)
        << " had changed it, the other one has stored what it had loaded before";
}

// Three samples for each of two threads. While thread 1 is inside its first sample, thread 0 learns
// from its own that weight 0 is 8. Thread 1 has to know that at its second sample, whose residual
// is 8 * 64 - 100 with it and -100 without; the sign is what weight 1 learns. Thread 0 waits then
// for thread 1 to be through, so that no update is lost.
TEST(Hogwild, LoadsTheWeightsAnewForEachSample) {
  constexpr std::int64_t M = 2;
  const Order order = order_of(6, 1, 0);
  const std::int64_t first = order[0], second = order[1], others_first = order[3],
                     others_second = order[4], others_third = order[5];
  Problem problem = blank_problem(6, M);
  problem.x[static_cast<std::size_t>(first * M)] = 64;
  problem.x[static_cast<std::size_t>(others_second * M)] = 64;
  problem.x[static_cast<std::size_t>(others_second * M + 1)] = 1;
  problem.y[static_cast<std::size_t>(first)] = 100;
  problem.y[static_cast<std::size_t>(others_second)] = 100;
  Event other_has_begun, first_is_stored, others_second_is_stored;
  std::atomic<bool> in_time = true;
  problem.watch = [&](std::int64_t i) {
    if (i == others_first) other_has_begun.tell();
    if (i == second) first_is_stored.tell();
    if (i == others_third) others_second_is_stored.tell();
    if ((i == first && !other_has_begun.wait()) || (i == others_first && !first_is_stored.wait()) ||
        (i == second && !others_second_is_stored.wait()))
      in_time = false;
  };
  const Descent descent = hogwild(problem, 2, {.epochs = 1, .learning_rate = 0.125});
  ASSERT_TRUE(in_time) << "no thread finished a sample while the other one was inside a sample";
  ASSERT_EQ(descent.weights[1], -0.125)
      << "thread 0 had changed weight 0 before thread 1 began its second sample, whose error has "
         "another sign since: the weights have to be loaded anew for each sample (0.125: they "
         "were not)";
}

TEST(Hogwild, LastLossIsThatOfTheWeights) {
  const Problem problem = make_problem(drawn("samples of Hogwild, loss", 100, 400), 5, test_seed());
  const Descent descent = hogwild(problem, 3, {.epochs = 4});
  ASSERT_EQ(descent.loss.size(), 5u);
  EXPECT_NEAR(descent.loss.front(), serial_loss(problem, weights_of(problem)), 1e-12);
  EXPECT_NEAR(descent.loss.back(), serial_loss(problem, descent.weights), 1e-12);
}

// The noise alone is a loss of 1; both ways end a little above it.
TEST(Hogwild, LearnsAboutAsWellAsInStep) {
  const Problem problem = problem_to_learn(drawn("samples of Hogwild, learn", 400, 800));
  const DescentOptions options{.epochs = 20, .batch = 16, .learning_rate = 0.02};
  const double in_step = serial_descent(problem, options, options.batch).loss.back();
  const Descent descent = hogwild(problem, 3, options);
  EXPECT_LT(descent.loss.back(), descent.loss.front() - 0.5);
  EXPECT_NEAR(descent.loss.back(), in_step, 0.25);
}

}  // namespace
}  // namespace aisc
