// The subgradient against differences of the error, and descent in step against one thread's.
#include "01_mutex_mae/descent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>
#include <vector>

#include "common/core/rng.h"
#include "tests/01_mutex_mae/meeting.h"
#include "tests/01_mutex_mae/serial_descent.h"

namespace aisc {
namespace {

using Order = std::vector<std::int64_t>;

// Threads add in another order than one does: some 1e-16 for each of a few hundred additions.
constexpr double kRounding = 1e-12;

TEST(Order, IsTheShuffleOfFisherAndYates) {
  for (const std::int64_t N :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, drawn("samples of Order", 50, 500)}) {
    Order expected;
    for (std::int64_t i = 0; i < N; ++i) expected.push_back(i);
    for (std::int64_t i = N - 1; i >= 1; --i) {
      const auto index = static_cast<std::uint64_t>(i);
      std::swap(expected[index], expected[Philox(7, "order", 3).below(index, index + 1)]);
    }
    EXPECT_EQ(order_of(N, 7, 3), expected);
  }
}

TEST(Order, DiffersByEpochAndSeed) {
  EXPECT_EQ(order_of(100, 1, 0), order_of(100, 1, 0));
  EXPECT_NE(order_of(100, 1, 0), order_of(100, 1, 1));
  EXPECT_NE(order_of(100, 1, 0), order_of(100, 2, 0));
}

TEST(MeanError, IsTheMeanForEveryTeam) {
  for (const std::int64_t N : {std::int64_t{0}, std::int64_t{1}, std::int64_t{256},
                               std::int64_t{257}, drawn("samples of MeanError", 500, 2000)}) {
    const Problem problem = make_problem(N, 4, test_seed());
    const Weights weights = weights_of(problem);
    Team one(1);
    const double alone = mae_at(problem, weights, one);
    EXPECT_NEAR(alone, serial_loss(problem, weights), kRounding);
    for (const int threads : {2, 3, 8}) {
      Team team(threads);
      EXPECT_EQ(mae_at(problem, weights, team), alone) << threads << " threads";
    }
  }
}

TEST(Subgradient, MatchesCentralDifferences) {
  const std::int64_t M = drawn("features of Subgradient", 1, 20);
  const Problem problem = make_problem(30, M, test_seed());
  const Weights weights = weights_of(problem);
  constexpr double kStep = 1e-4,
                   kTolerance = 1e-8;  // the error is linear on both sides of its kink
  for (std::int64_t i = 0; i < problem.N; ++i) {
    if (std::fabs(serial_residual(problem, i, weights)) < 0.01) continue;  // near the kink
    Weights gradient(weights.size(), 0.0);
    add_subgradient(problem, i, weights, 1, gradient);
    for (std::size_t j = 0; j < weights.size(); ++j) {
      Weights less = weights, more = weights;
      less[j] -= kStep;
      more[j] += kStep;
      const double slope = (std::fabs(serial_residual(problem, i, more)) -
                            std::fabs(serial_residual(problem, i, less))) /
                           (2 * kStep);
      ASSERT_NEAR(gradient[j], slope, kTolerance)
          << "sample " << i << ", " << (j + 1 < weights.size() ? "weight " : "the bias, element ")
          << j << " of 0 .. " << M;
    }
  }
}

TEST(Subgradient, IsZeroWhereTheErrorIsZero) {
  // 2 * 3 - 1 * 4 + 5 = 7
  const Problem problem{.N = 1, .M = 2, .x = {3, 4}, .y = {7}, .w = {2, -1}, .b = 5};
  Weights gradient{10, 20, 30};
  EXPECT_EQ(add_subgradient(problem, 0, weights_of(problem), 1, gradient), 0);
  EXPECT_EQ(gradient, (Weights{10, 20, 30})) << "an error of 0 has the subgradient 0";
}

TEST(Subgradient, AddsFactorTimesSignTimesFeatures) {
  // Predictions 7 and -3: 2 too high, and 5 too low.
  const Problem problem{.N = 2, .M = 2, .x = {3, 4, -1, 6}, .y = {5, 2}, .w = {2, -1}, .b = 5};
  Weights gradient{100, 200, 300};
  EXPECT_EQ(add_subgradient(problem, 0, weights_of(problem), 0.5, gradient), 2);
  EXPECT_EQ(gradient, (Weights{101.5, 202, 300.5}))
      << "after {100, 200, 300}: to it comes 0.5 * (+1) * {3, 4, 1}, the bias last";
  EXPECT_EQ(add_subgradient(problem, 1, weights_of(problem), 2, gradient), 5)
      << "the error is the residual without its sign";
  EXPECT_EQ(gradient, (Weights{103.5, 190, 298.5}))
      << "after {101.5, 202, 300.5}: to it comes 2 * (-1) * {-1, 6, 1}";
}

TEST(Subgradient, UsesTheWeightsItIsGiven) {
  const Problem problem{.N = 1, .M = 1, .x = {4}, .y = {5}, .w = {100}, .b = 100};
  Weights gradient{0, 0};
  EXPECT_EQ(add_subgradient(problem, 0, Weights{1, -1}, 1, gradient), 2)
      << "|1 * 4 - 1 - 5|: the weights are an argument; problem.w and problem.b are where it "
         "starts";
  EXPECT_EQ(gradient, (Weights{-4, -1}));
}

TEST(Subgradient, WithoutFeaturesThereIsTheBias) {
  const Problem problem{.N = 1, .M = 0, .y = {3}, .b = 5};
  Weights gradient{0};
  EXPECT_EQ(add_subgradient(problem, 0, weights_of(problem), 0.25, gradient), 2);
  EXPECT_EQ(gradient, Weights{0.25});
}

TEST(Subgradient, AsksForTheResidualOnce) {
  Problem problem = exact_problem(5, 3, test_seed());
  Order asked;
  problem.watch = [&](std::int64_t i) { asked.push_back(i); };
  Weights gradient(4);
  add_subgradient(problem, 3, weights_of(problem), 1, gradient);
  EXPECT_EQ(asked, Order{3}) << "residual() tells problem.watch which sample is asked for";
}

Descent synchronous(const Problem& problem, int threads, const DescentOptions& options) {
  Team team(threads);
  return train_synchronous(problem, team, options);
}

std::string case_of(std::int64_t N, std::int64_t batch, int threads) {
  return std::to_string(N) + " samples, batch " + std::to_string(batch) + ", " +
         std::to_string(threads) + " threads";
}

void expect_serial(std::int64_t N, std::int64_t batch, int threads) {
  const Problem problem = make_problem(N, drawn("features of Synchronous", 1, 9), test_seed());
  const DescentOptions options{.seed = test_seed(), .epochs = 3, .batch = batch};
  expect_descent(synchronous(problem, threads, options), serial_descent(problem, options, batch),
                 kRounding, case_of(N, batch, threads));
}

TEST(Synchronous, OneThreadTakesTheSerialSteps) {
  const std::int64_t batch = drawn("batch of Synchronous, alone", 2, 20);
  expect_serial(8 * batch, batch, 1);
}

TEST(Synchronous, EveryTeamTakesTheSerialSteps) {
  const std::int64_t batch = drawn("batch of Synchronous", 8, 30);
  for (const int threads : {2, 3, 4, 5}) expect_serial(8 * batch, batch, threads);
}

TEST(Synchronous, LastBatchMayBeShorter) {
  const std::int64_t batch = drawn("batch of Synchronous, last", 3, 20);
  for (const int threads : {1, 2, 3}) {
    expect_serial(5 * batch + 1, batch, threads);
    expect_serial(5 * batch - 1, batch, threads);
  }
}

TEST(Synchronous, BatchMayBeLargerThanTheData) {
  const std::int64_t N = drawn("samples of Synchronous, few", 3, 20);
  for (const int threads : {1, 3}) expect_serial(N, N + 7, threads);
}

TEST(Synchronous, ThreadsMayBeMoreThanSamples) {
  for (const std::int64_t N : {1, 2, 3})
    for (const std::int64_t batch : {1, 2, 5}) expect_serial(N, batch, 4);
  expect_serial(drawn("samples of Synchronous, many", 20, 60), 2, 5);
}

TEST(Synchronous, WithoutSamplesOrEpochsTheWeightsStay) {
  expect_weights_stay_without_samples_or_epochs(train_synchronous);
}

TEST(Synchronous, SamplesComeInTheOrderOfTheirEpoch) {
  Problem problem = exact_problem(drawn("samples of Synchronous, order", 20, 90), 2, test_seed());
  Order seen, expected;
  problem.watch = [&](std::int64_t i) { seen.push_back(i); };
  synchronous(problem, 1, {.seed = test_seed(), .epochs = 3, .batch = 7});
  for (std::int64_t epoch = 0; epoch < 3; ++epoch)
    for (const std::int64_t i : order_of(problem.N, test_seed(), epoch)) expected.push_back(i);
  ASSERT_EQ(seen.size(), expected.size()) << "samples asked for in 3 epochs";
  for (std::size_t k = 0; k < seen.size(); ++k)
    ASSERT_EQ(seen[k], expected[k])
        << "sample number " << k << " since the start, of " << problem.N << " an epoch";
}

TEST(Synchronous, EachThreadTakesItsChunkOfEachBatch) {
  const std::int64_t N = drawn("samples of Synchronous, chunks", 40, 90), batch = 16;
  Problem problem = exact_problem(N, 2, test_seed());
  for (const int threads : {2, 3, 5}) {
    Team team(threads);
    const std::function<int()> number = number_in(team);
    std::mutex mutex;
    std::vector<std::vector<int>> askers(static_cast<std::size_t>(N));
    problem.watch = [&](std::int64_t i) {
      const std::lock_guard lock(mutex);
      askers[static_cast<std::size_t>(i)].push_back(number());
    };
    train_synchronous(problem, team, {.seed = 2, .epochs = 1, .batch = batch});
    const Order order = order_of(N, 2, 0);
    for (std::int64_t begin = 0; begin < N; begin += batch) {
      const std::int64_t count = std::min(batch, N - begin);
      for (int t = 0; t < threads; ++t)
        for (std::int64_t k = count * t / threads; k < count * (t + 1) / threads; ++k)
          ASSERT_EQ(askers[static_cast<std::size_t>(order[static_cast<std::size_t>(begin + k)])],
                    std::vector<int>{t})
              << "threads that asked for sample " << k << " of the " << count << " of batch "
              << begin / batch << ": it is in the chunk of thread " << t << " of " << threads;
    }
  }
}

// In the first batch each thread waits at its first sample until every other is at its own.
TEST(Synchronous, AllThreadsWorkOnABatchAtOnce) {
  for (const int threads : {2, 4}) {
    Problem problem = exact_problem(drawn("samples of Synchronous, at once", 40, 90), 2, 1);
    Gathering meeting(threads);
    problem.watch = [&](std::int64_t) { meeting.arrive(); };
    synchronous(problem, threads, {.epochs = 1, .batch = 16});
    ASSERT_EQ(meeting.present(), threads)
        << "of " << threads << " threads only " << meeting.present() << " were at work at once";
  }
}

// Four samples for three threads, whose sums are of the size 2^60, -2^60 and 1 in three ways: 1 is
// left over only where it is added last. One thread is late: others that do not wait for their turn
// are before it.
TEST(Synchronous, SumsAreAddedInTheOrderOfThreads) {
  constexpr float kLarge = 0x1p60f;
  constexpr std::size_t kFeatures = 3;
  const float sums[3][kFeatures] = {
      {1, kLarge, kLarge}, {kLarge, 1, -kLarge}, {-kLarge, -kLarge, 1}};
  for (const int late : {0, 1}) {
    const Order order = order_of(4, test_seed(), 0);
    Problem problem = blank_problem(4, kFeatures);
    std::fill(problem.y.begin(), problem.y.end(), 100.0f);
    for (std::size_t t = 0; t < 3; ++t)  // the fourth sample is thread 2's second: zeros
      for (std::size_t j = 0; j < kFeatures; ++j)
        problem.x[static_cast<std::size_t>(order[t]) * kFeatures + j] = sums[t][j];
    Event others_came[2];
    std::atomic<bool> in_time = true;
    problem.watch = [&](std::int64_t i) {
      if (i == order[static_cast<std::size_t>(1 - late)]) others_came[0].tell();
      if (i == order[3]) others_came[1].tell();
      if (i != order[static_cast<std::size_t>(late)]) return;
      if (!others_came[0].wait() || !others_came[1].wait()) in_time = false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    const Descent descent = synchronous(
        problem, 3, {.seed = test_seed(), .epochs = 1, .batch = 4, .learning_rate = 0.25});
    ASSERT_TRUE(in_time) << "while thread " << late << " of 3 was inside its sample the others "
                         << "did not come to theirs";
    ASSERT_EQ(Weights(descent.weights.begin(), descent.weights.end() - 1), (Weights{0, 0, 0.0625}))
        << "weights after one batch, in which thread " << late
        << " of 3 comes last: the threads' sums are to be added in the order of threads, whoever "
           "comes first";
  }
}

TEST(Synchronous, LearnsToPredict) {
  const Problem problem = problem_to_learn(drawn("samples of Synchronous, learn", 400, 800));
  const Descent descent = synchronous(problem, 2, {.epochs = 20, .batch = 16});
  EXPECT_LT(descent.loss.back(), descent.loss.front() - 0.5)
      << "from " << descent.loss.front() << ": the noise alone is 1";
  EXPECT_LT(descent.loss.back(), 1.25);
}

}  // namespace
}  // namespace aisc
