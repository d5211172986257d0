// A server that takes what comes, in virtual time.
#include "03_data_parallel/more/parameter_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/comm/launch.h"
#include "tests/support/error_says.h"
#include "tests/support/exact_network.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

struct Served {
  std::vector<ServedUpdate> updates;
  std::vector<double> seconds;               // of the server's clock, at each update
  std::vector<std::vector<double>> weights;  // by update, before it
  std::vector<double> final_weights;
};

// Workers' steps take `seconds` each. The gradient is the weight that it was computed from, plus
// the worker's rank; the server subtracts a tenth of it.
Served run(const std::vector<double>& seconds, const ServerOptions& options, bool late = false) {
  Served ran;
  LaunchOptions launch_options{.ranks = static_cast<int>(seconds.size()) + 1, .bind = false};
  if (late)
    launch_options.internals.decorate = make_late_comm;
  else
    launch_options.network = exact::kFlat;
  launch(launch_options, [&](const Rank& rank) {
    const int r = rank.world.rank();
    const Tensor weights = from_doubles({1, 2}, {2}, DType::F64, rank.device);
    const Tensor gradients = Tensor::zeros({2}, DType::F64, rank.device);
    if (r > 0) {
      write_doubles(weights, {0, 0});
      work(rank, weights, gradients, [&](std::int64_t) {
        if (rank.clock.is_virtual()) rank.clock.advance(seconds[static_cast<std::size_t>(r - 1)]);
        std::vector<double> g = to_doubles(weights);
        for (double& x : g) x += r;
        write_doubles(gradients, g);
      });
      return;
    }
    ran.updates = serve(rank, weights, gradients, options, [&](const ServedUpdate&) {
      ran.seconds.push_back(rank.clock.now());
      std::vector<double> w = to_doubles(weights);
      ran.weights.push_back(w);
      const std::vector<double> g = to_doubles(gradients);
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= .1 * g[i];
      write_doubles(weights, w);
    });
    ran.final_weights = to_doubles(weights);
  });
  return ran;
}

// What the updates must have made of the weights, by their ages alone.
void expect_weights_of_updates(const Served& ran) {
  std::vector<std::vector<double>> history{{1, 2}};
  for (std::size_t u = 0; u < ran.updates.size(); ++u) {
    EXPECT_EQ(ran.weights[u], history.back()) << "update " << u;
    const std::vector<double>& seen = history[u - static_cast<std::size_t>(ran.updates[u].age)];
    std::vector<double> next = history.back();
    for (std::size_t i = 0; i < next.size(); ++i) next[i] -= .1 * (seen[i] + ran.updates[u].worker);
    history.push_back(next);
  }
  EXPECT_EQ(ran.final_weights, history.back());
}

// Of each worker: steps, and the greatest age of a gradient.
struct OfWorker {
  std::int64_t steps = 0, oldest = 0;
};
std::map<int, OfWorker> by_worker(const Served& ran) {
  std::map<int, OfWorker> workers;
  for (const ServedUpdate& update : ran.updates) {
    OfWorker& worker = workers[update.worker];
    EXPECT_EQ(update.step, worker.steps++) << "worker " << update.worker;
    worker.oldest = std::max(worker.oldest, update.age);
  }
  return workers;
}

TEST(ParameterServer, OfOneWorkerIsTheSerialRun) {
  const Served ran = run({1}, {.updates = 5});
  EXPECT_EQ(ran.updates.size(), 5U);
  EXPECT_EQ(by_worker(ran)[1].oldest, 0);
  expect_weights_of_updates(ran);
}

TEST(ParameterServer, TakesEachGradientOnceAndAppliesItToWhatThereIs) {
  for (const bool late : {false, true}) {
    const Served ran = run({1, .5, 2}, {.updates = 20}, late);
    EXPECT_EQ(ran.updates.size(), 20U);
    by_worker(ran);
    expect_weights_of_updates(ran);
  }
}

// Of n equal workers each gradient is n - 1 updates old, once all are at work.
TEST(ParameterServer, EqualWorkersAreAsOldAsThereAreOthers) {
  const Served ran = run(std::vector<double>(4, 1), {.updates = 20});
  for (std::size_t u = 4; u < ran.updates.size(); ++u) EXPECT_EQ(ran.updates[u].age, 3);
}

TEST(ParameterServer, NobodyWaitsForTheSlowest) {
  const Served ran = run({1, 1, 8}, {.updates = 51});
  auto workers = by_worker(ran);
  EXPECT_EQ(workers[3].steps, 3) << "24 seconds of the slow one,";
  EXPECT_EQ(workers[1].steps, 24) << "and of the others";
  EXPECT_GE(workers[3].oldest, 14) << "what the slow one computes is old when it comes";
  EXPECT_LE(workers[1].oldest, 2);
  EXPECT_LT(ran.seconds.back(), 26);
}

TEST(ParameterServer, ABoundHoldsTheFastBack) {
  for (const std::int64_t staleness : {0, 1, 3}) {
    const Served ran = run({1, 1, 8}, {.updates = 30, .staleness = staleness});
    std::map<int, std::int64_t> ended{{1, 0}, {2, 0}, {3, 0}};
    for (const ServedUpdate& update : ran.updates) {
      ended[update.worker] = update.step + 1;
      const auto [slowest, fastest] = std::minmax({ended[1], ended[2], ended[3]});
      EXPECT_LE(fastest - slowest, staleness + 1) << "staleness " << staleness;
    }
    expect_weights_of_updates(ran);
    EXPECT_LE(by_worker(ran)[3].oldest, 2 * (staleness + 1))
        << "two workers, so many steps ahead at most";
  }
}

TEST(ParameterServer, WithoutStalenessGoesInRounds) {
  const Served ran = run({1, 2, 3}, {.updates = 12, .staleness = 0});
  for (std::size_t u = 0; u < ran.updates.size(); ++u)
    EXPECT_EQ(ran.updates[u].step, static_cast<std::int64_t>(u / 3)) << "update " << u;
}

TEST(ParameterServer, NeedsAWorker) {
  EXPECT_TRUE(error_says([] { run({}, {}); }, {"1 rank", "at least one worker"}));
}

}  // namespace
}  // namespace aisc
