// Whose message passes next.
#include "common/comm/backend/wire_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/exact_network.h"

namespace aisc::exact {
namespace {

std::string order_of(WireQueue<char>& queue) {
  std::string order;
  while (!queue.empty()) order += queue.pop();
  return order;
}

TEST(WireQueue, GoesByTheTimeOfSending) {
  WireQueue<char> queue;
  queue.push(2, 0, 0, 0, 'c');
  queue.push(1, 1, 0, 0, 'b');
  queue.push(0.5, 2, 0, 0, 'a');
  EXPECT_EQ(queue.next_seconds(), 0.5);
  EXPECT_EQ(order_of(queue), "abc");
}

TEST(WireQueue, LetsEachRankHaveItsFirstBeforeAnyHasItsSecond) {
  WireQueue<char> queue;
  queue.push(1, 0, 0, 1, 'a');
  queue.push(1, 0, 0, 2, 'd');
  queue.push(1, 0, 1, 1, 'f');
  queue.push(1, 1, 7, 2, 'e');
  queue.push(1, 1, 7, 1, 'b');
  queue.push(1, 2, 3, 1, 'c');
  EXPECT_EQ(order_of(queue), "abcdef");
}

TEST(WireQueue, CountsWhatCameLateBehindItsRanksOthers) {
  WireQueue<char> queue;
  queue.push(1, 0, 0, 0, 'a');
  queue.push(1, 1, 0, 0, 'b');
  EXPECT_EQ(queue.pop(), 'a');
  queue.push(1, 0, 1, 0, 'c');
  EXPECT_EQ(queue.next_seconds(), 1);
  EXPECT_EQ(order_of(queue), "bc");
  queue.push(2, 1, 2, 0, 'e');
  queue.push(2, 0, 2, 0, 'd');
  EXPECT_EQ(order_of(queue), "de");
}

// Ranks 0 and 1 each send to 2 and to 3, in turns: while one's message passes to 2, the other's
// passes to 3. Were rank 0's two to go first, rank 1's would have to wait for the second.
TEST(WireQueue, KeepsAllWiresOfASwitchAtWork) {
  Network network{.wire_seconds_per_byte = std::vector<double>(8, kBeta)};  // in, then out
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b) network.routes.push_back({.wires = {a, 4 + b}});
  const auto times = end_times({.ranks = 4, .network = network}, [](Rank rank) {
    const int me = rank.world.rank();
    std::vector<Transfer> transfers;
    for (const int i : {0, 1}) {
      const int other = (me < 2 ? 2 : 0) + (me + i) % 2;
      if (me < 2) transfers.push_back({.in = f32(rank, 256), .to = other});
      if (me >= 2) transfers.push_back({.out = f32(rank, 256), .from = other});
    }
    rank.world.exchange(transfers).wait();
  });
  EXPECT_EQ(times, std::vector<double>(4, 2 * bytes(256) * kBeta));
}

}  // namespace
}  // namespace aisc::exact
