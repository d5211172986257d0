// The chain against one thread's, step by step and to the last bit, and against densities that are
// known: one integrated by hand, one by the midpoint rule.
#include "01_mutex_mae/metropolis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <vector>

#include "common/core/rng.h"
#include "tests/01_mutex_mae/exact_problem.h"
#include "tests/01_mutex_mae/meeting.h"
#include "tests/01_mutex_mae/tree_oracle.h"
#include "tests/01_mutex_mae/watched.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

constexpr std::int64_t kSamplesOfALeaf = 256;

// The MAE by the tree that reproducible.h describes, with one thread.
double tree_mae(Problem problem, const std::vector<float>& w) {
  problem.w = w;
  problem.watch = nullptr;
  std::vector<double> errors;
  for (std::int64_t i = 0; i < problem.N; ++i)
    errors.push_back(static_cast<double>(error_of(problem, i)));
  return oracle_of_reproducible(errors);
}

// One thread's chain. All features are 0 or powers of two, as is the step size: every product is
// exact, so the path is too, however the compiler fuses it.
Chain serial_chain(const Problem& problem, const ChainOptions& options) {
  Chain chain{.w = problem.w, .loss = {tree_mae(problem, problem.w)}};
  for (std::int64_t s = 0; s < options.steps; ++s) {
    const auto step = static_cast<std::uint64_t>(s);
    std::vector<float> proposed = chain.w;
    for (std::size_t j = 0; j < proposed.size(); ++j)
      proposed[j] = static_cast<float>(
          chain.w[j] + options.step_size * Philox(options.seed, "proposal", step).normal(j));
    const double before = chain.loss.back(), after = tree_mae(problem, proposed);
    const double ratio =
        std::exp(static_cast<double>(problem.N) * (before - after) / options.scale);
    const bool taken = Philox(options.seed, "accept").uniform(step) < ratio;
    if (taken) chain.w = proposed;
    chain.accepted += taken;
    chain.loss.push_back(taken ? after : before);
  }
  return chain;
}

Chain run(const Problem& problem, int threads, const ChainOptions& options) {
  Team team(threads);
  return metropolis(problem, team, options);
}

void expect_equal(const Chain& found, const Chain& expected, int threads, const char* why = "") {
  ASSERT_EQ(found.loss.size(), expected.loss.size()) << "a loss for the start and each step";
  for (std::size_t s = 0; s < expected.loss.size(); ++s)
    if (found.loss[s] != expected.loss[s])
      FAIL() << "with " << threads << " threads, the loss after " << s
             << " steps is the first that differs: " << exactly(found.loss[s]) << " instead of "
             << exactly(expected.loss[s]) << "; it was "
             << exactly(s > 0 ? expected.loss[s - 1] : expected.loss[s]) << " before" << why;
  EXPECT_EQ(found.w, expected.w) << threads << " threads: the losses are right, the weights not";
  EXPECT_EQ(found.accepted, expected.accepted) << threads << " threads";
}

TEST(Metropolis, FollowsTheChainOfOneThreadStepByStep) {
  const std::int64_t N = drawn("samples of Metropolis", 50, 800);
  const std::int64_t M = drawn("features of Metropolis", 1, 9);
  const Problem problem = exact_problem(N, M, test_seed());
  for (const double scale : {1.0, 8.0}) {
    const ChainOptions options{
        .seed = test_seed() + 5, .steps = 60, .step_size = 0x1p-6, .scale = scale};
    const Chain expected = serial_chain(problem, options);
    for (const int threads : {1, 2, 3})
      expect_equal(run(problem, threads, options), expected, threads);
  }
}

TEST(Metropolis, PathIsTheSameForEveryTeam) {
  const std::int64_t N = drawn("samples of Metropolis, teams", 500, 1500);
  const Problem problem = make_problem(N, 5, test_seed());
  const ChainOptions options{.seed = test_seed(), .steps = 40};
  const Chain alone = run(problem, 1, options);
  for (int threads = 2; threads <= 9; ++threads)
    expect_equal(run(problem, threads, options), alone, threads);
}

// With more than one leaf and errors so far apart, no other order of additions has these bits.
TEST(Metropolis, PathIsTheFixedTreesToTheLastBit) {
  const std::int64_t N = drawn("samples of Metropolis, tree", 1000, 2000);
  const Problem problem = rough_problem(N, 3);
  const ChainOptions options{
      .seed = test_seed() + 3, .steps = 60, .step_size = 0x1p-7, .scale = 0x1p79};
  const Chain expected = serial_chain(problem, options);
  ASSERT_GT(expected.accepted, 0);  // of the test itself: both are to be seen
  ASSERT_LT(expected.accepted, options.steps);
  for (const int threads : {1, 3})
    expect_equal(run(problem, threads, options), expected, threads,
                 ". The errors are so far apart that only the order of additions of "
                 "mae_reproducible has these bits: is each MAE computed by it?");
}

// Each thread computes its leaves of each MAE. At the first all of them have to be there at once.
TEST(Metropolis, AllThreadsComputeEachLoss) {
  constexpr std::int64_t kSteps = 3;
  for (const int threads : {2, 3, 4}) {
    Problem problem = exact_problem(2 * threads * kSamplesOfALeaf, 1, test_seed());
    Team team(threads);
    const std::function<int()> number = number_in(team);
    Gathering meeting(threads);
    std::mutex mutex;
    std::vector<std::vector<int>> askers(static_cast<std::size_t>(problem.N));
    problem.watch = [&](std::int64_t i) {
      meeting.arrive();
      const std::lock_guard lock(mutex);
      askers[static_cast<std::size_t>(i)].push_back(number());
    };
    metropolis(problem, team, {.steps = kSteps});
    ASSERT_EQ(meeting.present(), threads)
        << "of " << threads << " threads only " << meeting.present()
        << " computed errors: is the MAE computed by the team that was given?";
    for (std::size_t i = 0; i < askers.size(); ++i) {
      const int owner = static_cast<int>(i) / (2 * static_cast<int>(kSamplesOfALeaf));
      ASSERT_EQ(askers[i], std::vector<int>(kSteps + 1, owner))
          << "threads that computed the error of sample " << i << ", at the start and in " << kSteps
          << " steps: it is in a leaf of thread " << owner << " of " << threads
          << " (-1: a thread that is not of the team)";
    }
  }
}

TEST(Metropolis, WithoutStepsNothingMoves) {
  const Problem problem = exact_problem(10, 3, test_seed());
  const Chain chain = run(problem, 2, {.steps = 0});
  EXPECT_EQ(chain.w, problem.w);
  EXPECT_EQ(chain.loss, std::vector<double>{tree_mae(problem, problem.w)});
  EXPECT_EQ(chain.accepted, 0);
}

TEST(Metropolis, WithoutSamplesEveryProposalIsTaken) {
  const Problem problem = exact_problem(0, 2, test_seed());
  const ChainOptions options{.steps = 20, .step_size = 0x1p-4};
  const Chain chain = run(problem, 2, options);
  EXPECT_EQ(chain.accepted, 20) << "all densities are 1: there is no reason to stay";
  expect_equal(chain, serial_chain(problem, options), 2);
}

// A rejected proposal leaves weights and loss alone: the loss after it is the loss before it.
TEST(Metropolis, CountsTheStepsThatMoveIt) {
  const Problem problem =
      make_problem(drawn("samples of Metropolis, count", 100, 400), 4, test_seed());
  const Chain chain = run(problem, 2, {.seed = test_seed(), .steps = 200, .step_size = 0.08});
  std::int64_t moves = 0;
  for (std::size_t s = 1; s < chain.loss.size(); ++s) moves += chain.loss[s] != chain.loss[s - 1];
  EXPECT_EQ(chain.accepted, moves) << "of 200 steps; the loss changed in " << moves;
  EXPECT_GT(moves, 0) << "no proposal was taken";
  EXPECT_LT(moves, 200) << "no proposal was rejected";
  EXPECT_NEAR(chain.loss.back(), tree_mae(problem, chain.w), 1e-6)
      << "the last loss is not that of the weights that came with it";
}

// One sample with feature 1: the error is |w - y|, and w has the density exp(-|w - y| / scale), so
// that P(error > t) = exp(-t / scale).
TEST(Metropolis, ErrorOfOneSampleIsExponential) {
  constexpr double kScale = 0.5;
  constexpr int kSteps = 40'000;
  // A path's deviations, for 40,000 steps of which some ten count for one, are below 0.01.
  constexpr double kTolerance = 0.03;
  const Problem problem{.N = 1, .M = 1, .x = {1}, .y = {2}, .w = {2}};
  const Chain chain =
      run(problem, 1, {.seed = 3, .steps = kSteps, .step_size = 1, .scale = kScale});
  for (const double t : {0.1, 0.25, 0.5, 1.0, 1.5}) {
    double above = 0;
    for (const double loss : chain.loss) above += loss > t;
    EXPECT_NEAR(above / kSteps, std::exp(-t / kScale), kTolerance)
        << "the part of the steps at which the error is above " << t
        << ": the chain does not draw from exp(-error / scale)";
  }
}

// Several samples, one weight: sums over a fine grid of w say what the mean loss has to be.
TEST(Metropolis, MeanLossIsThatOfTheDensity) {
  constexpr double kScale = 2;
  constexpr int kSteps = 40'000;
  constexpr double kTolerance = 0.03;  // as above
  Problem problem = make_problem(7, 1, 2);
  double weight = 0, weighted = 0;
  for (double w = problem.w[0] - 30; w < problem.w[0] + 30; w += 0.01) {
    double loss = 0;
    for (std::size_t i = 0; i < 7; ++i)
      loss += std::fabs(w * problem.x[i] + problem.b - problem.y[i]) / 7;
    const double density = std::exp(-7 * loss / kScale);
    weight += density;
    weighted += density * loss;
  }
  const Chain chain =
      run(problem, 1, {.seed = 4, .steps = kSteps, .step_size = 1, .scale = kScale});
  double sum = 0;
  for (const double loss : chain.loss) sum += loss;
  EXPECT_NEAR(sum / kSteps, weighted / weight, kTolerance)
      << "the mean of the chain's losses is not that of the density exp(-N MAE(w) / scale)";
}

}  // namespace
}  // namespace aisc
