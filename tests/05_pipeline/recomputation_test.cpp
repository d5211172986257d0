// When a stage's forward runs again, and which micro-batches need that.
#include "05_pipeline/recomputation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/drawn.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// What prepare_backward() calls, in its order: "remake receive".
std::string calls_of(Again again, bool is_kept) {
  std::string calls;
  CpuDevice device;
  const auto call = [&](const char* name) {
    calls += fmt::format("{}{}", calls.empty() ? "" : " ", name);
  };
  const auto received = static_cast<double>(drawn("gradient of Recomputation", 1, 99));
  const Tensor gradient = prepare_backward(
      again, is_kept, [&] { call("remake"); },
      [&] {
        call("receive");
        return from_doubles({received, -received}, {2}, DType::F64, device);
      });
  EXPECT_EQ(gradient ? to_doubles(gradient) : std::vector<double>(),
            (std::vector<double>{received, -received}))
      << "what is returned is what receive() returned";
  return calls;
}

TEST(EarlyRecomputation, EarlyIsBeforeTheRankWaits) {
  EXPECT_EQ(calls_of(Again::Early, false), "remake receive")
      << "order of calls: the forward does not need the gradient, for which the rank would wait";
}

TEST(EarlyRecomputation, OnArrivalIsAfterTheGradientIsThere) {
  EXPECT_EQ(calls_of(Again::OnArrival, false), "receive remake") << "order of calls";
}

TEST(EarlyRecomputation, WhatWasKeptIsNotMadeAgain) {
  for (const Again again : {Again::OnArrival, Again::Early})
    EXPECT_EQ(calls_of(again, true), "receive") << "activations are there";
}

TEST(EarlyRecomputation, NeverReceivesAlone) {
  for (const bool is_kept : {true, false})
    EXPECT_EQ(calls_of(Again::Never, is_kept), "receive")
        << "Again::Never makes nothing again, kept or not";
}

// The last stage receives nothing: its gradient is the loss's.
TEST(EarlyRecomputation, ReturnsNoTensorWhereNoneCame) {
  for (const Again again : {Again::OnArrival, Again::Early}) {
    int remade = 0;
    EXPECT_FALSE(prepare_backward(
        again, false, [&] { ++remade; }, [] { return Tensor(); }));
    EXPECT_EQ(remade, 1);
  }
}

// Seconds until each stage has begun the backward of one micro-batch; the gradient passes them from
// the last to the first.
std::vector<double> begins(int stages, Again again, double forward, double backward) {
  std::vector<double> seconds(static_cast<std::size_t>(stages));
  launch({.ranks = stages, .network = Network{}, .bind = false}, [&](const Rank& rank) {
    const int stage = rank.world.rank();
    Tensor gradient = prepare_backward(
        again, false, [&] { rank.clock.advance(forward); },
        [&] {
          Tensor received = from_doubles({0}, {1}, DType::F64, rank.device);
          if (stage + 1 < stages) rank.world.recv(received, stage + 1).wait();
          return received;
        });
    seconds[static_cast<std::size_t>(stage)] = rank.clock.now();
    rank.clock.advance(backward);
    if (stage > 0) rank.world.send(gradient, stage - 1).wait();
  });
  return seconds;
}

// Three stages, a forward takes 1 second and a backward 2. On arrival the last stage remakes from 0
// to 1 and is done at 3; the one before remakes until 4 and is done at 6; the first remakes
// until 7. Early all three remake from 0 to 1.
TEST(EarlyRecomputation, ThreeStagesInVirtualTimeByHand) {
  EXPECT_EQ(begins(3, Again::OnArrival, 1, 2), (std::vector<double>{7, 4, 1}))
      << "on arrival: when each of three stages begins its backward";
  EXPECT_EQ(begins(3, Again::Early, 1, 2), (std::vector<double>{5, 3, 1}))
      << "early: when each of three stages begins its backward";
}

TEST(EarlyRecomputation, SavesAForwardAStage) {
  const auto forward = static_cast<double>(drawn("forward of Recomputation", 1, 9));
  const auto backward = static_cast<double>(drawn("backward of Recomputation", 1, 9));
  for (const int p : {1, 2, 4, 7})
    EXPECT_EQ(begins(p, Again::OnArrival, forward, backward)[0] -
                  begins(p, Again::Early, forward, backward)[0],
              (p - 1) * forward)
        << p << " stages: (p - 1) tf";
}

}  // namespace
}  // namespace aisc
