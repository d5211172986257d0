// Training with weights, gradients and activations on the host is the serial run.
#include <gtest/gtest.h>

#include "02_cpu_offload/fit_savings.h"
#include "02_cpu_offload/gradients_home.h"
#include "02_cpu_offload/host_update.h"
#include "02_cpu_offload/host_weights.h"
#include "02_cpu_offload/more/file_memory.h"
#include "02_cpu_offload/saved_to_host.h"
#include "tests/support/error_says.h"
#include "tests/support/serial_run.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

class OffloadedTraining : public AgainstSerial {};
INSTANTIATE_TEST_SUITE_P(Ranks, OffloadedTraining, ::testing::Values(1, 2, 3, 4));

TEST_P(OffloadedTraining, WithWeightsOnTheHostIsTheSerialRun) {
  expect_serial(odd_training(several()), weights_on_host());
  expect_serial(odd_training(several()), weights_on_host({}, {.prefetch = false}));
}
TEST_P(OffloadedTraining, WithWeightsOnTheHostInVirtualTime) {
  expect_serial_in_virtual_time(odd_training(several()), weights_on_host());
}
TEST_P(OffloadedTraining, WithWeightsOnTheHostWhenMessagesAreLate) {
  expect_serial_when_late(odd_training(several()), weights_on_host());
}
TEST_P(OffloadedTraining, WithAllOnTheHost) {
  const StepParts parts = activations_on_host(weights_on_host(), {.least_bytes = 0});
  expect_serial(odd_training(several(), "block"), parts);
  expect_serial_in_virtual_time(odd_training(several()), parts);
}

// ZeRO-Offload: the optimizer's state on the host, gradients there, too, or divided on the devices.
TEST_P(OffloadedTraining, WithTheUpdateOnTheHost) {
  const HostUpdateOptions small{.piece = 100};
  expect_serial(odd_training(several()), update_on_host({}, small));
  expect_serial(odd_training(several()), update_on_host(gradients_on_host(), small));
  for (const int stage : {1, 2, 3})
    expect_serial(odd_training(several()), update_on_host(sharded({.stage = stage}), small));
}
TEST_P(OffloadedTraining, WithTheUpdateOnTheHostInVirtualTime) {
  const StepParts parts = update_on_host(gradients_on_host(), {.piece = 100});
  expect_serial_in_virtual_time(odd_training(several()), parts);
  expect_serial_when_late(odd_training(several()), parts);
}

struct Placed {
  double bytes_per_parameter;   // on the device, between steps
  double copied_per_parameter;  // over the link, of a step
};
Placed placed(StepParts parts) {
  TrainConfig config = odd_training();
  config.model = {
      .layers = 4, .heads = 4, .width = 64, .context = 8, .vocabulary = 61, .dtype = DType::BF16};
  config.gradient_dtype = DType::BF16;
  config.batch = 4;
  const Machine machine = find_machine("dgx-2");
  Placed result{};
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    Trainer trainer(rank, config, std::move(parts));
    const std::vector<std::uint8_t> zeros(64);
    const BatchSampler data(zeros, 8, 1);
    trainer.step(data);
    const Copied before = rank.device.copied();
    trainer.step(data);
    const Copied after = rank.device.copied();
    const Ledger ledger = rank.device.ledger();
    double bytes = 0;
    for (const Purpose p : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer})
      bytes += static_cast<double>(ledger[p].live_bytes);
    const auto count = static_cast<double>(trainer.parameters().layout().count());
    const auto copied = static_cast<double>(after.to_device - before.to_device + after.from_device -
                                            before.from_device);
    result = {bytes / count, copied / count};
  });
  return result;
}

// The table of section 3.2 of the paper: 16, 14, 4 and 2 bytes (a widely copied one prints 4 for
// the last).
TEST(ZeroOffload, FourPlacementsTake16And14And4And2Bytes) {
  const StepParts all_here;
  EXPECT_EQ(placed(all_here).bytes_per_parameter, 16);
  const StepParts gradients_there =
      update_on_host(gradients_on_host(), {.on = HostUpdateOptions::On::Device});
  EXPECT_EQ(placed(gradients_there).bytes_per_parameter, 14);
  EXPECT_EQ(placed(update_on_host()).bytes_per_parameter, 4);
  EXPECT_EQ(placed(update_on_host(gradients_on_host())).bytes_per_parameter, 2);
}

// 2 for the gradient, 2 for the weight; a tied table's gradient goes twice.
TEST(ZeroOffload, FourBytesOfAParameterGoOverTheLinkInAStep) {
  EXPECT_NEAR(placed(update_on_host()).copied_per_parameter, 4, 1e-9);
  const double table = 128.0 * 64, count = table + 8 * 64 + 4 * (12 * 64 * 64 + 13 * 64) + 2 * 64;
  EXPECT_NEAR(placed(update_on_host(gradients_on_host())).copied_per_parameter,
              4 + 2 * table / count, 1e-9);
}

// What is chosen fits, takes as long as it says, and changes no bit.
class FittedStep : public ::testing::Test {
 protected:
  static TrainConfig sized() {
    TrainConfig config = odd_training();
    config.model = {.layers = 6,
                    .heads = 4,
                    .width = 64,
                    .context = 32,
                    .vocabulary = 61,
                    .dropout = .1,
                    .dtype = DType::F64};
    config.batch = 4;
    return config;
  }
  // With a link so many times as slow.
  static Machine machine_of(double slower) {
    Machine machine = find_machine("dgx-2");
    machine.host_link.seconds_per_byte *= slower;
    machine.capacity = 0;
    return machine;
  }
  static StepMeasure measured(const Machine& machine, const TrainConfig& config,
                              const StepParts& parts) {
    StepMeasure result;
    launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
      Trainer trainer(rank, config, parts);
      const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(config.model.context + 1));
      const BatchSampler data(zeros, config.model.context, 1);
      const double begin = rank.clock.now();
      trainer.step(data);
      result = {rank.clock.now() - begin, rank.device.ledger().total.peak_bytes};
    });
    return result;
  }
  static FittedSavings fitted(const Machine& machine, std::int64_t capacity) {
    return fit_savings(sized(), {}, machine.host_link, capacity,
                       [&](const TrainConfig& config, const StepParts& parts) {
                         return measured(machine, config, parts);
                       });
  }
};

TEST_F(FittedStep, HoldsNoMoreThanThereIsAndIsQuickerThanOneChoiceForAll) {
  int recomputed = 0, offloaded = 0;
  for (const double slower : {.02, 1.0, 20.0}) {
    const Machine machine = machine_of(slower);
    const StepMeasure none = measured(machine, sized(), {});
    TrainConfig blocks = sized();
    blocks.recompute.blocks = 1;
    const StepMeasure all_again = measured(machine, blocks, {});
    const StepMeasure all_away = measured(machine, sized(), activations_on_host({}));
    for (const double share : {.98, .9, .8}) {
      const auto capacity = static_cast<std::int64_t>(share * static_cast<double>(none.peak_bytes));
      const FittedSavings fit = fitted(machine, capacity);
      EXPECT_LE(fit.step.peak_bytes, capacity);
      EXPECT_GE(fit.step.seconds, none.seconds);
      for (const StepMeasure& all : {all_again, all_away})
        if (all.peak_bytes <= capacity) {
          EXPECT_LE(fit.step.seconds, all.seconds);
        }
      for (const bool is : fit.recomputed) recomputed += is;
      for (const bool is : fit.offloaded) offloaded += is;
    }
  }
  EXPECT_GT(recomputed, 0) << "where links are slow";
  EXPECT_GT(offloaded, 0) << "where links are fast";
}

TEST_F(FittedStep, ChangesNoBit) {
  const Machine machine = machine_of(1);
  const StepMeasure none = measured(machine, sized(), {});
  const FittedSavings fit =
      fitted(machine, static_cast<std::int64_t>(.85 * static_cast<double>(none.peak_bytes)));
  TrainConfig chosen = sized();
  chosen.recompute.chosen = fit.recomputed;
  const auto moved = run_layout({.options = on_machine(machine, 1, {.poison = true})}, chosen, 2,
                                activations_on_host({}, {.layers = fit.offloaded}));
  EXPECT_TRUE(same_steps(run_layout({.ranks = 1}, sized(), 2), moved, 0));
}

TEST_F(FittedStep, SaysWhatIsNeededAtLeast) {
  EXPECT_TRUE(error_says([&] { fitted(machine_of(1), 1000); },
                         {"--recompute auto: a rank needs", "GB at least", "--offload weights"}));
}

// Moved there and back nothing changes.
TEST(ActivationsOnTheHost, LeaveTheSameBits) {
  const TrainConfig config = odd_training(3);
  const auto plain = run_layout({.ranks = 1}, config, 2);
  for (const bool prefetch : {true, false}) {
    const StepParts parts = activations_on_host({}, {.least_bytes = 0, .prefetch = prefetch});
    const Machine machine = find_machine("dgx-a100");
    const auto moved =
        run_layout({.options = on_machine(machine, 1, {.poison = true})}, config, 2, parts);
    EXPECT_TRUE(same_steps(plain, moved, 0));
  }
}

// Weights, gradients and Adam's moments take four times what the device has.
TEST(WeightsOnTheHost, TrainAModelFourTimesAsLargeAsTheDevice) {
  TrainConfig config = odd_training();
  config.model = {
      .layers = 16, .heads = 4, .width = 64, .context = 8, .vocabulary = 61, .dtype = DType::F64};
  config.batch = 4;
  Machine machine = find_machine("dgx-a100");
  const std::int64_t parameters = 16 * 12 * 64 * 64;  // and some more
  machine.capacity = static_cast<double>(parameters * 4 * 8 / 4);
  const auto serial = run_layout({.ranks = 1}, config, 2);
  const LaunchOptions device = on_machine(machine, 1, {.poison = true});
  EXPECT_THROW(run_layout({.options = device}, config, 2), Error);
  EXPECT_TRUE(
      same_steps(serial, run_layout({.options = device}, config, 2,
                                    activations_on_host(weights_on_host(), {.least_bytes = 0}))));
}

TEST(WeightsInAFile, TrainsAsTheSerialRun) {
  const TemporaryFolder folder;
  StepParts parts = weights_on_host();
  const auto inner = parts.reducer;
  parts.reducer = [&](const Rank& rank, const Model& model, ParameterStore& store) {
    const auto memory = std::make_shared<FileMemory>(folder.path());
    make_host(rank, memory, memory);
    return inner(rank, model, store);
  };
  TrainConfig config = odd_training(3);
  config.model.width = 96;
  config.model.layers = 6;
  config.model.heads = 4;
  const auto serial = run_layout({.ranks = 1}, config, 2);
  EXPECT_TRUE(same_steps(serial, run_layout({.ranks = 2}, config, 2, parts)));
}

}  // namespace
}  // namespace aisc
