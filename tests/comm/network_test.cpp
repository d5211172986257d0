// The clock rule of messages, by hand.
#include "common/comm/network.h"

#include <gtest/gtest.h>

namespace aisc {
namespace {

constexpr Link kLink{.latency_seconds = 1, .seconds_per_byte = 0.5};

TEST(RankLinks, SendTheMessagesOfAStepOneAfterTheOther) {
  RankLinks links;
  const Passage first = links.send(0, 8, kLink), second = links.send(0, 8, kLink);
  EXPECT_EQ(first.sent_seconds, 0);
  EXPECT_EQ(first.arrives_seconds, 1);
  EXPECT_EQ(first.done_seconds(), 5);
  EXPECT_EQ(second.sent_seconds, 4);
  EXPECT_EQ(second.arrives_seconds, 5);
  EXPECT_EQ(second.done_seconds(), 9);
  EXPECT_EQ(links.send(20, 8, kLink).sent_seconds, 20);  // the link out was free at 8
}

TEST(RankLinks, ReceiveOneMessageAfterTheOther) {
  RankLinks one, other, receiver;
  EXPECT_EQ(receiver.receive(one.send(0, 8, kLink)), 5);
  EXPECT_EQ(receiver.receive(other.send(0, 8, kLink)), 9);
  EXPECT_EQ(receiver.receive(other.send(20, 8, kLink)), 25);
}

TEST(RankLinks, AreNotUsedByWhatCameOverWires) {
  RankLinks sender, receiver;
  const Passage shared{.sent_seconds = 0, .arrives_seconds = 7, .is_shared = true};
  EXPECT_EQ(shared.done_seconds(), 7);
  EXPECT_EQ(receiver.receive(shared), 7);
  EXPECT_EQ(receiver.receive(sender.send(0, 8, kLink)), 5);
}

TEST(SharedWires, TakeEachWireForItsOwnTimeAndArriveAtThePaceOfTheSlowest) {
  const Network network{.wire_seconds_per_byte = {1, 2},
                        .routes = {{},
                                   {.latency_seconds = 1, .wires = {0, 1}},  // 0 -> 1
                                   {.latency_seconds = 1, .wires = {0}},
                                   {}}};  // 1 -> 0
  SharedWires wires(network, 2);
  const Passage first = wires.pass(0, 1, 4, 0);
  EXPECT_TRUE(first.is_shared);
  EXPECT_EQ(first.sent_seconds, 0);
  EXPECT_EQ(first.arrives_seconds, 1 + 8);
  EXPECT_EQ(wires.pass(1, 0, 4, 0).arrives_seconds, 1 + 4 + 4);  // wire 0 is free at 1 + 4
  EXPECT_EQ(wires.pass(0, 1, 4, 0).arrives_seconds, 9 + 8);      // both are at 9
}

TEST(Networks, CountTheSecondsOfBytesThatAreAdded) {
  EXPECT_EQ((Network{.reduce_seconds_per_byte = 0.25}).reduced_seconds(3, 8), 5);
}

}  // namespace
}  // namespace aisc
