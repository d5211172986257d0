// Runs that fail, and how they end on each rank.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/conformance.h"
#include "tests/support/message_of.h"

namespace aisc {

// Long enough for a rank to come in time on a busy machine. Other tests have the default of 30 s:
// what they wait for is said at once, and something else after a timeout.
inline constexpr double kShortTimeout = 1;

// How a run ended: the message of each rank's error ("" of those that returned) and launch()'s.
struct Outcome {
  std::vector<std::string> ranks;
  std::string launch;
};

// A test for each backend that finds faults in its own way.
class Faults : public ::testing::TestWithParam<conformance::Backend> {
 protected:
  using Message = ::testing::Matcher<const std::string&>;

  Outcome run(int ranks, const std::function<void(Rank)>& body) const {
    return run(conformance::options_of(GetParam(), ranks), body);
  }
  Outcome run_impatiently(int ranks, const std::function<void(Rank)>& body) const {
    LaunchOptions options = conformance::options_of(GetParam(), ranks);
    options.timeout_seconds = kShortTimeout;
    return run(options, body);
  }
  static Outcome run(const LaunchOptions& options, const std::function<void(Rank)>& body) {
    Outcome outcome{.ranks = std::vector<std::string>(static_cast<std::size_t>(options.ranks))};
    outcome.launch = message_of([&] {
      launch(options, [&](Rank rank) {
        std::string& message = outcome.ranks[static_cast<std::size_t>(rank.world.rank())];
        try {
          body(rank);
        } catch (const Error& error) {
          message = error.what();
          throw;
        }
      });
    });
    return outcome;
  }

  // Every rank, but not `guilty`, ended with a message like this.
  static void expect_all_but(int guilty, const Outcome& outcome, const Message& message) {
    for (std::size_t rank = 0; rank < outcome.ranks.size(); ++rank)
      if (static_cast<int>(rank) != guilty) {
        EXPECT_THAT(outcome.ranks[rank], message) << "on rank " << rank;
      }
  }
  static void expect_all(const Outcome& outcome, const Message& message) {
    expect_all_but(-1, outcome, message);
  }

  static Tensor tensor(Rank& rank, std::int64_t count, DType dtype = DType::F32) {
    return Tensor::zeros({count}, dtype, rank.device);
  }
};
inline const auto kFaultBackends = ::testing::Values(
    conformance::Backend::Plain, conformance::Backend::Plans, conformance::Backend::TinyChunks,
    conformance::Backend::Late, conformance::Backend::Virtual);

}  // namespace aisc
