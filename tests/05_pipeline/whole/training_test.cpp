// A GPT trained through a pipeline: by any schedule, the serial run.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "03_data_parallel/bucketed_reduction.h"
#include "05_pipeline/pipelined.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

TrainConfig config_of(int pp, std::int64_t micro_batches, double dropout = 0.1) {
  TrainConfig c = odd_training(pp, 0, 2 * micro_batches, micro_batches, 5);
  c.model.dropout = dropout;
  return c;
}

struct TrainingCase {
  std::string schedule;
  int pp, micro_batches, chunks = 1;
  Again again = Again::Never;
  std::int64_t keep_bytes = 0;
  bool virtual_time = false;
  std::int64_t layers = 0;  // 0: five, or one a stage
};
std::ostream& operator<<(std::ostream& out, const TrainingCase& c) {
  return out << c.schedule << " pp " << c.pp << " m " << c.micro_batches << " v " << c.chunks
             << " blocks " << c.layers << " again " << static_cast<int>(c.again) << " keep "
             << c.keep_bytes << (c.virtual_time ? " in virtual time" : "");
}

class Synchronous : public ::testing::TestWithParam<TrainingCase> {};

TEST_P(Synchronous, LeavesWhatOneRankLeaves) {
  const TrainingCase& c = GetParam();
  TrainConfig config = config_of(c.pp, c.micro_batches);
  config.model.layers = c.layers > 0 ? c.layers : std::max<std::int64_t>(5, c.pp * c.chunks);
  const PipelineChoice choice{
      .schedule = c.schedule, .chunks = c.chunks, .again = c.again, .keep_bytes = c.keep_bytes};
  EXPECT_TRUE(same_steps(
      serial_steps(config, 2),
      run_layout({.ranks = c.pp, .virtual_time = c.virtual_time}, config, 2, pipelined(choice))));
}

std::vector<TrainingCase> cases() {
  std::vector<TrainingCase> all;
  for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1", "zb-h2"})
    for (const int pp : {2, 3, 4})
      for (int m = 1; m <= 9; ++m) all.push_back({schedule, pp, m});
  for (const int m : {4, 8}) all.push_back({"interleaved", 2, m, 2});
  all.push_back({"interleaved", 2, 4, 3});
  all.push_back({"interleaved", 3, 6, 2});
  all.push_back({"interleaved", 4, 4, 2});
  for (int m = 1; m <= 9; ++m) all.push_back({"zb-v", 2, m, 2});
  all.push_back({"zb-v", 3, 6, 2});
  all.push_back({"zb-v", 4, 8, 2});
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"})
    all.push_back({.schedule = schedule,
                   .pp = 2,
                   .micro_batches = 4,
                   .chunks = std::string(schedule) == "interleaved" ? 2 : 1,
                   .virtual_time = true});
  for (const Again again : {Again::OnArrival, Again::Early})
    for (const std::int64_t keep : {0, 100'000, 1 << 30}) {
      all.push_back({"gpipe", 3, 5, 1, again, keep});
      all.push_back({"zb-h1", 2, 4, 1, again, keep});
    }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schedules, Synchronous, ::testing::ValuesIn(cases()));

// More stages than blocks: the embedding is a stage alone, or the head, or both.
std::vector<TrainingCase> more_stages_than_blocks() {
  const auto of = [](std::int64_t layers, TrainingCase c) {
    c.layers = layers;
    return c;
  };
  std::vector<TrainingCase> all{of(2, {"interleaved", 2, 4, 2}),
                                of(3, {"interleaved", 2, 4, 2}),
                                of(2, {"zb-v", 2, 4, 2}),
                                of(4, {"zb-v", 3, 4, 2}),
                                of(1, {"1f1b", 3, 4}),
                                of(1, {"1f1b", 2, 4}),
                                of(1, {"gpipe", 3, 4}),
                                of(2, {"1f1b", 4, 4, 1, Again::OnArrival}),
                                of(2, {"gpipe", 4, 4, 1, Again::Early}),
                                of(2, {"1f1b", 4, 4, 1, Again::Never, 0, true})};
  for (const char* schedule : {"1f1b", "gpipe", "naive", "zb-h1", "zb-h2"})
    all.push_back(of(2, {schedule, 4, 4}));
  return all;
}
INSTANTIATE_TEST_SUITE_P(EndsAlone, Synchronous, ::testing::ValuesIn(more_stages_than_blocks()));

// Ranks that have the same stages divide the batch. (With shards of the stages: module 11.)
struct Grid {
  int dp, pp;
  std::string schedule;
  bool buckets = false;
};
std::ostream& operator<<(std::ostream& out, const Grid& g) {
  return out << "dp " << g.dp << " pp " << g.pp << " " << g.schedule
             << (g.buckets ? " in buckets" : "");
}
class DataAndPipeline : public ::testing::TestWithParam<Grid> {};

TEST_P(DataAndPipeline, LeavesWhatOneRankLeaves) {
  const Grid& g = GetParam();
  const bool interleaves = g.schedule == "interleaved";
  TrainConfig config = config_of(g.pp, interleaves ? 2 : 3);
  config.batch = interleaves ? 10 : 9;  // two pipelines: micro-batches of 2 and 3, or of 1 and 2
  StepParts parts;
  if (g.buckets) parts.reducer = bucketed({.first_bytes = 64, .bytes = 3000, .overlap = true});
  const PipelineChoice choice{.schedule = g.schedule, .chunks = interleaves ? 2 : 1};
  EXPECT_TRUE(same_steps(serial_steps(config, 2),
                         run_layout({.ranks = g.dp * g.pp}, config, 2, pipelined(choice, parts))));
}
INSTANTIATE_TEST_SUITE_P(Grids, DataAndPipeline,
                         ::testing::Values(Grid{2, 2, "1f1b"}, Grid{2, 3, "gpipe"},
                                           Grid{3, 2, "zb-h2"}, Grid{2, 2, "interleaved"},
                                           Grid{2, 2, "1f1b", true}, Grid{2, 2, "zb-h1", true},
                                           Grid{2, 2, "interleaved", true}));

std::vector<Batch> windows_of(const Rank& rank, const TrainConfig& config, int count, int samples) {
  const std::vector<std::uint8_t> text = some_text();
  const BatchSampler data(text, config.model.context, 7);
  std::vector<Batch> windows;
  for (int w = 0; w < count; ++w) windows.push_back(data.batch(rank.device, w, samples));
  return windows;
}

TEST(Pipeline, EvaluatesAsOneRank) {
  for (const TrainingCase& c : {TrainingCase{"1f1b", 3, 2}, TrainingCase{"interleaved", 2, 2, 2},
                                TrainingCase{"zb-v", 2, 2, 2}}) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const auto loss = [](const TrainConfig& config, const StepParts& parts) {
      double result = 0;
      launch(launch_options({.ranks = config.pp}), [&](Rank rank) {
        const double mean = Trainer(rank, config, parts).evaluate(windows_of(rank, config, 3, 2));
        if (rank.world.rank() == 0) result = mean;
      });
      return result;
    };
    EXPECT_NEAR(loss(config_of(c.pp, c.micro_batches),
                     pipelined({.schedule = c.schedule, .chunks = c.chunks})),
                loss(config_of(1, c.micro_batches), {}), 1e-12);
  }
}

// The first stage does not run ahead of the others without end.
TEST(Pipeline, EvaluatesManyWindowsInNoMoreMemory) {
  for (const TrainingCase& c : {TrainingCase{"1f1b", 3, 2}, TrainingCase{"interleaved", 2, 2, 2}}) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const TrainConfig config = config_of(c.pp, c.micro_batches);
    constexpr int kWindows = 400;
    std::int64_t most = 0;  // of the rank that had most
    std::mutex mutex;
    launch(launch_options({.ranks = c.pp}), [&](Rank rank) {
      const Trainer trainer(rank, config, pipelined({.schedule = c.schedule, .chunks = c.chunks}));
      const std::vector<Batch> windows = windows_of(rank, config, kWindows, 1);
      rank.world.barrier();
      rank.device.reset_peaks();
      trainer.evaluate(windows);
      const std::lock_guard lock(mutex);
      most = std::max(most, rank.device.ledger()[Purpose::Activations].peak_bytes);
    });
    // Between two stages some windows are on their way, far fewer than all.
    const std::int64_t window = config.model.context * config.model.width * 8;  // F64
    EXPECT_LE(most, 4 * c.chunks * 8 * c.pp * window);
    EXPECT_LT(4 * c.chunks * 8 * c.pp, kWindows) << "or the test says nothing";
  }
}

TEST(Pipeline, CountsTheNormOfTheWholeModelOnce) {
  const double serial = serial_steps(config_of(1, 2), 1)[0].norms.at(0);
  for (const int pp : {2, 4})
    EXPECT_NEAR(run_layout({.ranks = pp}, config_of(pp, 2), 1, pipelined({}))[0].norms.at(0),
                serial, 1e-12 * serial)
        << pp;
}

}  // namespace
}  // namespace aisc
