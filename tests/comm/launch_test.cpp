// What launch() gives to each rank, and what it refuses.
#include "common/comm/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/core/system/machine.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

void do_nothing(Rank) {}

TEST(Launch, RunsTheBodyOncePerRankInAThreadOfItsOwn) {
  std::vector<std::thread::id> threads(3);
  std::vector<const Device*> devices(3);
  launch({.ranks = 3}, [&](Rank rank) {
    const auto me = static_cast<std::size_t>(rank.world.rank());
    EXPECT_EQ(rank.world.size(), 3);
    EXPECT_EQ(rank.world.name(), "world");
    EXPECT_EQ(threads[me], std::thread::id());
    threads[me] = std::this_thread::get_id();
    devices[me] = &rank.device;
    rank.world.barrier();
  });
  EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), 3U);
  EXPECT_EQ(std::set(devices.begin(), devices.end()).size(), 3U);
}

TEST(Launch, GivesEachRankItsShareOfTheCores) {
  for (const int ranks : {1, 2, 5})
    launch({.ranks = ranks},
           [&](Rank) { EXPECT_EQ(omp_get_max_threads(), std::max(1, available_cores() / ranks)); });
}

TEST(Launch, MakesDevicesByItsOptions) {
  launch({.ranks = 2, .device = {.capacity_bytes = 1000}}, [](Rank rank) {
    EXPECT_THROW(Tensor({1001}, DType::U8, rank.device), Error);
    rank.world.barrier();
  });
}

TEST(Launch, StartsVirtualClocksAtZeroWithAndWithoutPace) {
  for (const double pace : {0.0, 1e-3})
    launch({.ranks = 2, .network = Network{}, .pace = pace}, [](Rank rank) {
      EXPECT_EQ(rank.clock.now(), 0);
      rank.clock.advance(rank.world.rank() == 1 ? 2 : 1);
      rank.world.barrier();
      EXPECT_EQ(rank.clock.now(), 2);
    });
}

// Whatever carries the bytes, a trace names the call and its communicator.
TEST(Launch, RecordsTracesWhereAsked) {
  for (const bool record : {false, true})
    for (const auto& network : {std::optional<Network>(), std::optional(Network{})})
      launch({.ranks = 2, .network = network, .record_trace = record}, [&](Rank rank) {
        rank.world.all_reduce(Tensor::zeros({16}, DType::F32, rank.device)).wait();
        const std::vector<TraceEvent> events = rank.trace.events();
        ASSERT_EQ(events.size(), record ? 1U : 0U);
        if (!record) return;
        EXPECT_EQ(events[0].name, "all_reduce(16 x F32)");
        EXPECT_EQ(events[0].part, "world");
        EXPECT_LE(events[0].begin_seconds, events[0].end_seconds);
      });
}

TEST(Launch, ACallEndsInATraceWhenItIsOverNotWhenItIsWaitedFor) {
  for (const int ranks : {1, 2})
    launch({.ranks = ranks, .record_trace = true}, [&](Rank rank) {
      const Tensor x = Tensor::zeros({16}, DType::F32, rank.device);
      rank.world.barrier();  // from the first call on that a trace has seen, ends are measured
      Work work = rank.world.all_reduce(x);
      if (ranks > 1) rank.world.barrier();  // operations are over in their order
      const double later = rank.clock.now();
      while (rank.clock.now() <= later) continue;
      work.wait();
      const std::vector<TraceEvent> events = rank.trace.events();
      ASSERT_EQ(events.size(), ranks > 1 ? 3U : 2U);
      EXPECT_LE(events[1].end_seconds, later) << events[1].name << ", " << ranks << " ranks";
    });
}

TEST(Launch, RefusesOptionsThatMakeNoSense) {
  const auto refusal = [](const LaunchOptions& options) {
    return message_of([&] { launch(options, do_nothing); });
  };
  EXPECT_EQ(refusal({.ranks = -1}), "launch: -1 ranks, 0 (as many as there are) or more expected");
  EXPECT_EQ(refusal({.timeout_seconds = 0}), "launch: timeout_seconds 0 is not in (0, 1000000]");
  EXPECT_EQ(refusal({.internals = {.chunk_bytes = 0}}),
            "launch: chunk_bytes 0 or inline_bytes 16384 is too small");
  EXPECT_EQ(refusal({.internals = {.inline_bytes = -1}}),
            "launch: chunk_bytes 262144 or inline_bytes -1 is too small");
  EXPECT_EQ(refusal({.network = Network{.ranks_per_node = 2, .cards_per_node = 0}}),
            "network: cards_per_node 0, at least 1 expected");
}

TEST(Launch, SaysHowManyThreadsTheSystemStarts) {
  constexpr std::size_t kMoreThanThereIs = std::size_t{1} << 50;  // bytes of a stack
  EXPECT_THAT(message_of([&] {
                launch({.ranks = 2, .internals = {.stack_bytes = kMoreThanThereIs}}, do_nothing);
              }),
              ::testing::HasSubstr("launch: the system starts no more than 0 of 2 threads"));
}

}  // namespace
}  // namespace aisc
