// Runs that fail, and how they end on each rank.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/conformance.h"
#include "tests/support/message_of.h"

namespace aisc {

// Long enough for a rank to come in time on a busy machine. Other tests have the default of 30 s:
// what they wait for is said at once, and something else after a timeout.
inline constexpr double kShortTimeout = 1;
// A rank that is late by half of it must be in time to hear of the failure: within it once more.
inline constexpr double kShortTimeoutOfProcesses = 2;

// How a run ended, as this process saw it: the message of each of its ranks' errors ("" of those
// that returned), and launch()'s. Under mpirun a process has one rank, and each checks its own.
struct Outcome {
  std::map<int, std::string> ranks;
  std::string launch;
};

// A test for each backend that finds faults in its own way.
class Faults : public ::testing::TestWithParam<conformance::Backend> {
 protected:
  using Message = ::testing::Matcher<const std::string&>;

  // A message that contains each of these.
  static Message says(const std::vector<std::string>& fragments) {
    std::vector<Message> all;
    for (const std::string& fragment : fragments) all.push_back(::testing::HasSubstr(fragment));
    return ::testing::AllOfArray(all);
  }

  // Whether there can be so many ranks here; under mpirun only one number of them.
  static bool can_run(int ranks) {
    return conformance::rank_counts({ranks}) == std::vector<int>{ranks} &&
           conformance::lacks_gpus(GetParam(), ranks).empty();
  }
  static constexpr const char* kOtherSize = "for another number of processes, or of GPUs";

  Outcome run(int ranks, const std::function<void(Rank)>& body) const {
    return run(conformance::options_of(GetParam(), ranks), body);
  }
  Outcome run_impatiently(int ranks, const std::function<void(Rank)>& body) const {
    LaunchOptions options = conformance::options_of(GetParam(), ranks);
    options.timeout_seconds =
        is_of_processes(GetParam()) ? kShortTimeoutOfProcesses : kShortTimeout;
    return run(options, body);
  }
  // Of ranks that wait for each other: threads see it at once, processes at the timeout.
  Outcome run_in_a_cycle(int ranks, const std::function<void(Rank)>& body) const {
    return is_of_processes(GetParam()) ? run_impatiently(ranks, body) : run(ranks, body);
  }
  static Outcome run(const LaunchOptions& options, const std::function<void(Rank)>& body) {
    Outcome outcome;
    std::mutex mutex;
    const auto record = [&](const Rank& rank, const std::string& message) {
      const std::lock_guard lock(mutex);
      outcome.ranks[rank.world.rank()] = message;
    };
    outcome.launch = message_of([&] {
      launch(options, [&](Rank rank) {
        record(rank, "");
        try {
          body(rank);
          rank.device.synchronize();  // what a GPU waits for in vain shows here at the latest
        } catch (const Error& error) {
          record(rank, error.what());
          throw;
        }
      });
    });
    return outcome;
  }

  // `rank`, if it is one of this process, ended with a message like this; every rank; every rank
  // but `guilty`.
  static void expect_on(int rank, const Outcome& outcome, const Message& message) {
    const auto found = outcome.ranks.find(rank);
    if (found != outcome.ranks.end()) {
      EXPECT_THAT(found->second, message) << "on rank " << rank;
    }
  }
  static void expect_all_but(int guilty, const Outcome& outcome, const Message& message) {
    for (const auto& [rank, found] : outcome.ranks)
      if (rank != guilty) expect_on(rank, outcome, message);
  }
  static void expect_all(const Outcome& outcome, const Message& message) {
    expect_all_but(-1, outcome, message);
  }

  static Tensor tensor(Rank& rank, std::int64_t count, DType dtype = DType::F32) {
    return Tensor::zeros({count}, dtype, rank.device);
  }
};

// MpiUnchecked is not among them: it finds no mismatches, and other faults as Mpi does.
inline std::vector<conformance::Backend> fault_backends() {
  using conformance::Backend;
  return conformance::backends({Backend::Plain, Backend::Plans, Backend::TinyChunks, Backend::Late,
                                Backend::Virtual, Backend::Cuda, Backend::Nccl, Backend::Mpi,
                                Backend::MpiTiny, Backend::MpiPlans, Backend::MpiLate,
                                Backend::MpiCuda});
}

}  // namespace aisc
