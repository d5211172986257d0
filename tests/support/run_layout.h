// The test that matters everywhere: a configuration on any layout of ranks leaves behind what it
// leaves on one. A technique adds a row to a table of layouts.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "common/train/trainer.h"
#include "tests/support/same_run.h"
#include "tests/support/tensors.h"

namespace aisc {

// Of how many ranks of which kind. Under mpirun ranks are processes, as many as there are; one rank
// is a thread of each.
struct RankLayout {
  int ranks = 1;
  bool virtual_time = false;
  DeviceKind kind = DeviceKind::Cpu;
  int gpu = -1;  // all ranks' GPU; -1: one each
  LaunchOptions::BetweenGpus between_gpus = LaunchOptions::BetweenGpus::Auto;
  PlanTable plans = {};                       // of collectives
  std::optional<LaunchOptions> options = {};  // in place of all this: an emulated machine's
};

// New memory holds NaN, so that what is never written is seen. Ranks are not bound: other tests may
// run on the same cores.
inline LaunchOptions launch_options(const RankLayout& layout) {
  if (layout.options) return *layout.options;
  LaunchOptions options{.ranks = layout.ranks,
                        .backend = layout.ranks == 1 || layout.virtual_time
                                       ? LaunchOptions::Backend::Threads
                                       : LaunchOptions::Backend::Auto,
                        .plans = layout.plans,
                        .device = {.kind = layout.kind, .index = layout.gpu, .poison = true},
                        .between_gpus = layout.between_gpus,
                        .bind = false};
  if (layout.virtual_time) options.network = Network{.link = {1e-5, 1e-9}};
  return options;
}

inline std::vector<std::uint8_t> some_text() {
  std::vector<std::uint8_t> text(500);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 13);
  return text;
}

// What each step leaves behind: the losses up to it, the norms where step() reports them, and whole
// gradients and weights after it. T(rank, config, more ...) is what trains, with step(data) and
// parameters() like Trainer's.
template <class T = Trainer, class... More>
std::vector<RunRecord> run_layout(const RankLayout& layout, const TrainConfig& config, int steps,
                                  const More&... more) {
  const std::vector<std::uint8_t> text = some_text();
  std::vector<RunRecord> result;
  std::mutex mutex;
  launch(launch_options(layout), [&](Rank rank) {
    T trainer(rank, config, more...);
    const BatchSampler data(text, config.model.context, config.seed);
    std::vector<RunRecord> records;
    std::vector<double> losses, norms;
    for (int i = 0; i < steps; ++i) {
      const auto report = trainer.step(data);
      losses.push_back(report.loss);
      if constexpr (requires { report.gradient_norm; }) norms.push_back(report.gradient_norm);
      records.push_back(gather_whole(rank, trainer.optimizer().slices()));
      records.back().losses = losses;
      records.back().norms = norms;
    }
    const std::lock_guard lock(mutex);
    if (result.empty())
      result = std::move(records);
    else
      for (std::size_t i = 0; i < records.size(); ++i) {
        EXPECT_EQ(records[i].losses, result[i].losses) << "step " << i << ": ranks report others";
        EXPECT_EQ(records[i].norms, result[i].norms) << "step " << i << ": ranks report others";
      }
  });
  return result;
}

// Every step of a run against the serial one. A failure names the first step that differs, and what
// of it same_run names.
inline ::testing::AssertionResult same_steps(const std::vector<RunRecord>& serial,
                                             const std::vector<RunRecord>& other,
                                             double tolerance = kSameRunF64) {
  if (serial.size() != other.size())
    return ::testing::AssertionFailure()
           << other.size() << " steps, the serial run has " << serial.size();
  for (std::size_t i = 0; i < serial.size(); ++i)
    if (const auto same = same_run(serial[i], other[i], tolerance); !same)
      return ::testing::AssertionFailure() << "in step " << i << ": " << same.message();
  return ::testing::AssertionSuccess();
}

}  // namespace aisc
