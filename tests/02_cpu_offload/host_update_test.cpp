// The update on the host: the numbers of AdamW, what goes over the link, and when.
#include "02_cpu_offload/host_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "common/model/emulated_device.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr std::int64_t kPiece = 64;
constexpr AdamW::Options kAdamW{.weight_decay = 0.1};

// The link moves a piece in a second each way, and the host updates one in `update` seconds: 56
// bytes an element, four numbers that are read and three that are written.
Machine updating_in(double update) {
  Machine machine = find_machine("limitless");
  machine.host_link = {0, 1.0 / (8 * kPiece)};
  machine.memory_bandwidth = machine.vector_flops = std::numeric_limits<double>::infinity();
  machine.host_bandwidth = 56 * kPiece / update;
  return machine;
}

struct Types {
  DType weight = DType::F64, gradient = DType::F64;
};

// Weights and gradients, on the device unless `gradients_on` says otherwise.
struct Held {
  Held(const Rank& rank, std::vector<std::int64_t> counts, const Types& types = {},
       Device* gradients_on = nullptr) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      Device& home = gradients_on ? *gradients_on : rank.device;
      weights.emplace_back(Shape{counts[i]}, types.weight, rank.device, Purpose::Parameters);
      gradients.emplace_back(Shape{counts[i]}, types.gradient, home, Purpose::Gradients);
      ops::fill(weights[i], 1 + static_cast<double>(i));
    }
  }
  std::vector<OptimizerSlice> slices() const {
    std::vector<OptimizerSlice> all;
    for (std::size_t i = 0; i < weights.size(); ++i)
      all.push_back({.name = "w" + std::to_string(i),
                     .weight = weights[i].view(),
                     .gradient = gradients[i].view(),
                     .decay = i % 2 == 0});
    return all;
  }
  // Of these weights: an update that came a step too late or too early makes others.
  void make_gradients(std::int64_t step) const {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::vector<double> w = to_doubles(weights[i]);
      std::vector<double> g;
      for (std::size_t j = 0; j < w.size(); ++j)
        g.push_back(.25 * w[j] - .125 * static_cast<double>((j * 7 + i) % 5) +
                    .5 * static_cast<double>(step % 3));
      set(gradients[i], g);
    }
  }
  static void set(const Tensor& to, const std::vector<double>& numbers) {
    write_doubles(to, numbers);
  }
  bool operator==(const Held& other) const {
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (to_doubles(weights[i]) != to_doubles(other.weights[i])) return false;
    return true;
  }
  std::vector<Tensor> weights, gradients;
};

OptimizerStep at(std::int64_t step) {
  return {.learning_rate = .01 * static_cast<double>(step), .gradient_scale = .5};
}

void expect_adamw(const Rank& rank, const Types& types) {
  Held serial(rank, {10, 3, 200}, types), held(rank, {10, 3, 200}, types);
  AdamW adamw(serial.slices(), kAdamW);
  HostUpdate host(rank, held.slices(), {.adamw = kAdamW, .piece = kPiece});
  for (std::int64_t step = 1; step <= 3; ++step) {
    serial.make_gradients(step);
    held.make_gradients(step);
    adamw.step(at(step));
    host.step(at(step));
    EXPECT_TRUE(held == serial) << name_of(types.weight) << ", step " << step;
  }
}

constexpr Types kTypes[] = {{DType::F64, DType::F64},
                            {DType::F32, DType::F32},
                            {DType::BF16, DType::BF16},
                            {DType::BF16, DType::F32}};

TEST(PieceByPiece, IsAdamWBitByBit) {
  for (const Types& types : kTypes)
    launch({.ranks = 1, .device = {.poison = true}, .bind = false},
           [&](const Rank& rank) { expect_adamw(rank, types); });
}

// Copies are late there: what nobody waits for is NaN.
TEST(PieceByPiece, IsAdamWWhereCopiesAreLate) {
  const Machine machine = updating_in(2);
  for (const Types& types : kTypes)
    launch(on_machine(machine, 1, {.poison = true}),
           [&](const Rank& rank) { expect_adamw(rank, types); });
}

double seconds_of_three_pieces(double update, bool gradients_there = false) {
  const Machine machine = updating_in(update);
  double seconds = 0;
  launch(on_machine(machine, 1), [&](const Rank& rank) {
    Held held(rank, {3 * kPiece}, {}, gradients_there ? &host_of(rank).memory() : nullptr);
    HostUpdate host(rank, held.slices(), {.piece = kPiece});
    held.make_gradients(1);
    const double begin = rank.clock.now();
    host.step(at(1));
    seconds = rank.clock.now() - begin;
  });
  return seconds;
}

TEST(PieceByPiece, TheSlowestSaysHowLongItTakes) {
  // A gradient comes, three updates, the last weights go.
  EXPECT_EQ(seconds_of_three_pieces(2), 1 + 3 * 2 + 1)
      << "three pieces, a second each way, two to update: seconds of a step";
  // Three gradients come, the last update, its weights go.
  EXPECT_EQ(seconds_of_three_pieces(.5), 3 * 1 + .5 + 1)
      << "three pieces, a second each way, half a second to update: seconds of a step";
}

TEST(PieceByPiece, GradientsThatAreThereDoNotCome) {
  EXPECT_EQ(seconds_of_three_pieces(2, true), 3 * 2 + 1);
  EXPECT_EQ(seconds_of_three_pieces(.5, true), .5 + 3 * 1);
}

TEST(PieceByPiece, TwoGradientsAtMostAreUnderWay) {
  const Machine machine = updating_in(2);
  launch(on_machine(machine, 1), [](const Rank& rank) {
    Held held(rank, {5 * kPiece});
    HostUpdate host(rank, held.slices(), {.piece = kPiece});
    host.step(at(1));
    EXPECT_EQ(host_of(rank).memory().ledger()[Purpose::Gradients].peak_bytes, 2 * 8 * kPiece);
    EXPECT_EQ(host_of(rank).memory().ledger()[Purpose::Gradients].live_bytes, 0);
  });
}

TEST(PieceByPieceGiven, AGradientGoesAndAWeightComes) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Held held(rank, {100, 7}, {DType::BF16, DType::BF16});
    HostUpdate host(rank, held.slices(), {});
    const Copied before = rank.device.copied();
    host.step(at(1));
    const Copied after = rank.device.copied();
    EXPECT_EQ(after.from_device - before.from_device, 2 * 107);
    EXPECT_EQ(after.to_device - before.to_device, 2 * 107);
  });
}

TEST(PieceByPieceGiven, OnTheDeviceTheGradientsComeBack) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Held serial(rank, {100, 7}), held(rank, {100, 7}, {}, &host_of(rank).memory());
    AdamW adamw(serial.slices(), kAdamW);
    HostUpdate here(rank, held.slices(),
                    {.adamw = kAdamW, .on = HostUpdateOptions::On::Device, .piece = 10});
    for (std::int64_t step = 1; step <= 2; ++step) {
      serial.make_gradients(step);
      held.make_gradients(step);
      adamw.step(at(step));
      here.step(at(step));
    }
    EXPECT_TRUE(held == serial);
  });
}

TEST(PieceByPieceGiven, WhatCannotBeIsRefused) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Held held(rank, {4});
    EXPECT_TRUE(error_says([&] { HostUpdate(rank, held.slices(), {.piece = 0}); },
                           {"HostUpdate", "pieces need elements"}));
    EXPECT_TRUE(error_says(
        [&] {
          HostUpdate(rank, held.slices(), {.on = HostUpdateOptions::On::Device, .delayed = true});
        },
        {"an update on the device does not go on beside it"}));
  });
}

// The serial run with delay 1: AdamW moves `next`, the device's weights are what `next` was one
// step before.
struct Serial {
  Serial(const Rank& rank, std::vector<std::int64_t> counts, const Types& types,
         std::int64_t delay_after)
      : next(rank, counts, types),
        device(rank, counts, types),
        adamw(next.slices(), kAdamW),
        delay_after_(delay_after) {}
  void step(std::int64_t step) {
    device.make_gradients(step);
    std::vector<std::vector<double>> before;
    for (std::size_t i = 0; i < next.weights.size(); ++i) {
      before.push_back(to_doubles(next.weights[i]));
      Held::set(next.gradients[i], to_doubles(device.gradients[i]));
    }
    adamw.step(at(step));
    for (std::size_t i = 0; i < next.weights.size(); ++i)
      Held::set(device.weights[i], step > delay_after_ ? before[i] : to_doubles(next.weights[i]));
  }
  Held next, device;
  AdamW adamw;
  const std::int64_t delay_after_;
};

void expect_one_step_late(const Rank& rank, const Types& types, std::int64_t delay_after) {
  Serial serial(rank, {10, 3, 200}, types, delay_after);
  Held held(rank, {10, 3, 200}, types);
  HostUpdate host(rank, held.slices(),
                  {.adamw = kAdamW, .piece = kPiece, .delayed = true, .delay_after = delay_after});
  for (std::int64_t step = 1; step <= 6; ++step) {
    serial.step(step);
    held.make_gradients(step);
    host.step(at(step));
    EXPECT_TRUE(held == serial.device)
        << name_of(types.weight) << ", delays after " << delay_after << ", step " << step;
  }
}

TEST(OneStepLate, IsTheSerialRunWithDelayOne) {
  for (const std::int64_t delay_after : {0, 2})
    for (const Types& types : kTypes)
      launch({.ranks = 1, .device = {.poison = true}, .bind = false},
             [&](const Rank& rank) { expect_one_step_late(rank, types, delay_after); });
}

TEST(OneStepLate, IsTheSerialRunWhereCopiesAreLate) {
  const Machine machine = updating_in(2);
  for (const std::int64_t delay_after : {0, 2})
    launch(on_machine(machine, 1, {.poison = true}),
           [&](const Rank& rank) { expect_one_step_late(rank, {}, delay_after); });
}

// Forward and backward compute 5 s, three pieces: an update of 6 s in all.
TEST(OneStepLate, TheHostUpdatesWhileTheDeviceComputes) {
  const Machine machine = updating_in(2);
  launch(on_machine(machine, 1), [](const Rank& rank) {
    Held held(rank, {3 * kPiece});
    HostUpdate host(rank, held.slices(), {.piece = kPiece, .delayed = true});
    const double begin = rank.clock.now();
    const auto ends = [&](std::int64_t step) {
      rank.clock.advance(5);
      host.step(at(step));
      return rank.clock.now() - begin;
    };
    EXPECT_EQ(ends(1), 5 + 3) << "the gradients go home, and nothing else is waited for";
    // The host is done at 8 + 6, one second behind the device's 13. Gradients go home beside the
    // weights that come.
    EXPECT_EQ(ends(2), 14 + 3);
    EXPECT_EQ(ends(3), 17 + 6 + 3);
  });
}

TEST(OneStepLateGiven, GoesOnFromItsState) {
  for (const Types& types : kTypes)
    launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
      const HostUpdateOptions options{.adamw = kAdamW, .piece = kPiece, .delayed = true};
      Held whole(rank, {100}, types), later(rank, {100}, types);
      HostUpdate first(rank, whole.slices(), options);
      const auto step = [](const Held& held, HostUpdate& host, std::int64_t i) {
        held.make_gradients(i);
        host.step(at(i));
      };
      for (std::int64_t i = 1; i <= 3; ++i) step(whole, first, i);
      HostUpdate second(rank, later.slices(), options);
      Held::set(later.weights[0], to_doubles(whole.weights[0]));
      const std::vector<Optimizer::State> from = first.state(), to = second.state();
      ASSERT_EQ(from.size(), to.size());
      for (std::size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(from[i].name, to[i].name);
        rank.device.copy(to[i].value, from[i].value);
      }
      second.resume(3);
      for (std::int64_t i = 4; i <= 6; ++i) {
        step(whole, first, i);
        step(later, second, i);
        EXPECT_TRUE(later == whole) << name_of(types.weight) << ", step " << i;
      }
    });
}

TEST(OneStepLateGiven, WeightsThatTheNextStepReadsAreRefused) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Device& host = host_of(rank).memory();
    const Tensor weight = Tensor::zeros({4}, DType::F32, host);
    const Tensor gradient = Tensor::zeros({4}, DType::F32, host);
    const OptimizerSlice slice{.name = "w", .weight = weight.view(), .gradient = gradient.view()};
    EXPECT_TRUE(error_says([&] { HostUpdate(rank, {slice}, {.delayed = true}); },
                           {"a delayed update would write weights that the next step reads"}));
  });
}

}  // namespace
}  // namespace aisc
