// Training on many ranks is training on one: the same losses, gradients and weights, for every way
// of dividing the batch, and a single sum of the gradients a step.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "common/comm/launch.h"
#include "common/core/system/files.h"
#include "common/model/emulated_device.h"
#include "common/train/rank_traces.h"
#include "common/train/trainer.h"
#include "tests/support/conformance.h"
#include "tests/support/devices.h"
#include "tests/support/error_says.h"
#include "tests/support/serial_run.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

TrainConfig config_of(DType dtype, std::int64_t micro_batches = 1) {
  return odd_training(micro_batches, "none", dtype);
}

using BetweenGpus = LaunchOptions::BetweenGpus;
constexpr DeviceKind kCuda = DeviceKind::Cuda;

LaunchOptions on_ranks(int ranks) { return launch_options({.ranks = ranks}); }

// A Trainer that clips in every step.
struct Clipped {
  Clipped(const Rank& rank, const TrainConfig& config) : trainer(rank, config) {}
  StepReport step(const BatchSampler& data) {
    const StepReport report = trainer.step(data);
    EXPECT_GT(report.gradient_norm, trainer.config().clip) << "nothing is clipped";
    EXPECT_EQ(trainer.samples_taken(), trainer.steps_taken() * trainer.config().batch);
    return report;
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Trainer trainer;
};

std::vector<RunRecord> run(const RankLayout& layout, const TrainConfig& config, int steps) {
  return run_layout<Clipped>(layout, config, steps);
}

// With threads as many ranks as are named, under mpirun as many as there are processes.
class TrainerOnRanks : public ::testing::TestWithParam<int> {};
class RankTraces : public ::testing::TestWithParam<int> {};

TEST_P(TrainerOnRanks, EqualsTheSerialRunInF64) {
  for (const std::int64_t micro_batches : {1, 3, 7}) {
    if (GetParam() * micro_batches > 21) continue;  // a rank would have too few samples
    const TrainConfig config = config_of(DType::F64, micro_batches);
    const std::vector<RunRecord> serial = run({}, config_of(DType::F64), 5);
    for (const bool virtual_time : {false, true})
      EXPECT_TRUE(same_steps(serial, run({GetParam(), virtual_time}, config, 5)))
          << micro_batches << " micro-batches" << (virtual_time ? ", in virtual time" : "");
    const Machine machine = find_machine("dgx-a100");
    const RankLayout emulated{.options = on_machine(machine, GetParam(), {.poison = true})};
    EXPECT_TRUE(same_steps(serial, run(emulated, config, 5))) << micro_batches << " micro-batches";
  }
}

TEST_P(TrainerOnRanks, EqualsTheSerialRunWhereBlocksAreRecomputed) {
  const std::vector<RunRecord> serial = run({}, config_of(DType::F64), 3);
  TrainConfig config = config_of(DType::F64, GetParam() * 3 <= 21 ? 3 : 1);
  for (const std::int64_t blocks : {1, 2}) {
    config.recompute.blocks = blocks;
    EXPECT_TRUE(same_steps(serial, run({GetParam()}, config, 3))) << blocks << " at a time";
  }
}

std::string name_of_size(const ::testing::TestParamInfo<int>& test) {
  return std::to_string(test.param) + "_ranks";
}
INSTANTIATE_TEST_SUITE_P(Sizes, TrainerOnRanks, ::testing::ValuesIn(conformance::rank_counts()),
                         name_of_size);

// All ranks on one GPU, which NCCL refuses, and on a GPU each, against the serial run on the CPU.
class TrainerOnCudaRanks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  }
  static void expect_serial(const RankLayout& layout, std::int64_t micro_batches = 1) {
    EXPECT_TRUE(same_steps(run({}, config_of(DType::F64), 3),
                           run(layout, config_of(DType::F64, micro_batches), 3)));
  }
};

TEST_P(TrainerOnCudaRanks, OnOneGpuEqualTheSerialRunInF64) {
  expect_serial({.ranks = GetParam(), .kind = kCuda, .gpu = 0, .between_gpus = BetweenGpus::Staged},
                3);
}

TEST_P(TrainerOnCudaRanks, WithAGpuEachEqualTheSerialRunInF64) {
  expect_serial({.ranks = GetParam(), .kind = kCuda, .between_gpus = BetweenGpus::Staged});
}

TEST_P(TrainerOnCudaRanks, OverNcclEqualTheSerialRunInF64) {
  if (gpu_count() < GetParam() || started_processes())
    GTEST_SKIP() << gpu_count() << " GPUs of this process for " << GetParam() << " ranks";
  expect_serial({.ranks = GetParam(), .kind = kCuda, .between_gpus = BetweenGpus::Nccl});
}

INSTANTIATE_TEST_SUITE_P(Sizes, TrainerOnCudaRanks,
                         ::testing::ValuesIn(device_kinds().size() > 1
                                                 ? conformance::rank_counts({1, 2, 4})
                                                 : std::vector<int>()),
                         name_of_size);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TrainerOnCudaRanks);

// Sums in another order: F32 keeps 24 bits and BF16 8, of losses near log 13 = 2.6.
constexpr double kF32Losses = 1e-5;
constexpr double kBF16Losses = 0.02;

TEST(TrainerOnRanks, ShorterTypesStayNearTheSerialRun) {
  const auto distance = [](DType dtype) {
    const std::vector<RunRecord> serial = run({}, config_of(dtype), 5);
    const std::vector<RunRecord> three = run({.ranks = 3}, config_of(dtype), 5);
    double worst = 0;
    for (std::size_t i = 0; i < serial.size(); ++i)
      worst = std::max(worst, std::abs(serial[i].losses[i] - three[i].losses[i]));
    return worst;
  };
  EXPECT_LT(distance(DType::F32), kF32Losses);
  EXPECT_LT(distance(DType::BF16), kBF16Losses);
}

TEST(TrainerOnRanks, RepeatsToTheLastBit) {
  const TrainConfig config = config_of(DType::F32, 3);
  const RunRecord a = run({.ranks = 3}, config, 4).back(), b = run({.ranks = 3}, config, 4).back();
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.weights, b.weights);
}

// However many micro-batches: what they add up to is sent once, and beside it only the loss.
TEST(TrainerOnRanks, SumTheGradientsOnceAStep) {
  constexpr int kSteps = 3;
  const auto text = some_text();
  launch(on_ranks(2), [&](Rank rank) {
    const TrainConfig config = config_of(DType::F32, 3);
    Trainer trainer(rank, config);
    const BatchSampler data(text, config.model.context, config.seed);
    for (int i = 0; i < kSteps; ++i) trainer.step(data);
    const CommStats stats = rank.world.stats();
    const std::int64_t gradient_bytes = 4 * trainer.parameters().layout().count();
    EXPECT_EQ(stats[CommOp::AllReduce].calls, 2 * kSteps);
    EXPECT_EQ(stats[CommOp::AllReduce].payload_bytes, kSteps * (gradient_bytes + 8));
    std::int64_t calls = 0;
    for (const CommStats::Row& row : stats.rows) calls += row.calls;
    EXPECT_EQ(calls, 2 * kSteps) << "nothing else is sent";
  });
}

TEST(TrainerOnRanks, EvaluateOnTheWindowsOfAll) {
  constexpr std::int64_t kWindows = 5;
  const auto text = some_text();
  const auto loss_on = [&](int ranks) {
    std::vector<double> losses(static_cast<std::size_t>(ranks));
    launch(on_ranks(ranks), [&](Rank rank) {
      const TrainConfig config = config_of(DType::F64);
      Trainer trainer(rank, config);
      const BatchSampler data(text, config.model.context, 2);
      const Range mine = share_of(kWindows, rank.world.rank(), ranks);
      std::vector<Batch> windows;
      if (mine.count() > 0) windows.push_back(data.batch(rank.device, mine.begin, mine.count()));
      losses[static_cast<std::size_t>(rank.world.rank())] = trainer.evaluate(windows);
    });
    for (const double loss : losses) EXPECT_EQ(loss, losses[0]);
    return losses[0];
  };
  const double serial = loss_on(1);
  for (const int ranks : {2, 3, 7}) EXPECT_NEAR(loss_on(ranks), serial, 1e-13) << ranks << " ranks";
}

TEST(TrainerOnRanks, NeedWindowsToEvaluateOn) {
  EXPECT_TRUE(error_says(
      [] {
        launch(on_ranks(2), [](Rank rank) { Trainer(rank, config_of(DType::F32)).evaluate({}); });
      },
      {"evaluate", "no windows"}));
}

TEST(TrainerOnRanks, NeedASampleEachForEveryMicroBatch) {
  EXPECT_TRUE(error_says(
      [] { launch(on_ranks(4), [](Rank rank) { Trainer(rank, config_of(DType::F32, 7)); }); },
      {"batch 21 over ranks 4", "5 samples", "micro-batches 7"}));
}

TEST(TrainerOnRanks, FailTogetherWhereOneFails) {
  const auto text = some_text();
  const std::vector<std::uint8_t> damaged(500, 200);
  EXPECT_TRUE(error_says(
      [&] {
        launch(on_ranks(3), [&](Rank rank) {
          const TrainConfig config = config_of(DType::F32);
          Trainer trainer(rank, config);
          const BatchSampler data(rank.world.rank() == 1 ? damaged : text, config.model.context, 1);
          trainer.step(data);
        });
      },
      {"rank 1: ", "200"}));
}

// What write_traces() has rank 0 write, where rank 0 is of this process.
std::optional<nlohmann::json> traces_of(int ranks, const std::function<void(Rank&)>& body) {
  const TemporaryFolder folder;
  const std::string path = folder.path("trace.json");
  launch(on_ranks(ranks), [&](Rank rank) {
    rank.trace.record(true);
    body(rank);
    rank.trace.record(false);
    write_traces(rank, path);
  });
  if (!std::filesystem::exists(path)) return {};
  return nlohmann::json::parse(read_file(path));
}

TEST_P(RankTraces, AreProcessesOfOneFile) {
  const auto file = traces_of(GetParam(), [](Rank& rank) {
    const auto span = rank.trace.span("part", "span " + std::to_string(rank.world.rank()));
  });
  if (!file) return;
  std::set<std::pair<int, std::string>> spans, processes, expected_spans, expected_processes;
  for (const auto& event : (*file)["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "part") spans.emplace(event["pid"], event["name"]);
    if (event["name"] == "process_name") processes.emplace(event["pid"], event["args"]["name"]);
  }
  for (int rank = 0; rank < GetParam(); ++rank) {
    expected_spans.emplace(rank, "span " + std::to_string(rank));
    expected_processes.emplace(rank, "rank " + std::to_string(rank));
  }
  EXPECT_EQ(spans, expected_spans);
  EXPECT_EQ(processes, expected_processes);
}

// Spans of ranks that take turns do not overlap in the picture.
TEST_P(RankTraces, ShareOneClock) {
  constexpr int kTurns = 8;
  const auto file = traces_of(GetParam(), [](Rank& rank) {
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn % rank.world.size() == rank.world.rank()) {
        const auto span = rank.trace.span("turn", std::to_string(turn));
      }
      rank.world.barrier();
    }
  });
  if (!file) return;
  std::map<int, std::pair<double, double>> turns;  // begin, end
  for (const auto& event : (*file)["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == "turn") {
      const double begin = event["ts"], duration = event["dur"];
      turns[std::stoi(event["name"].get<std::string>())] = {begin, begin + duration};
    }
  ASSERT_EQ(turns.size(), static_cast<std::size_t>(kTurns));
  for (int turn = 1; turn < kTurns; ++turn)
    EXPECT_LT(turns[turn - 1].second, turns[turn].first) << "turn " << turn;
}

TEST_P(RankTraces, NameTheFileThatCannotBeWritten) {
  const std::string path = "/no/such/folder/trace.json";
  EXPECT_TRUE(error_says(
      [&] { launch(on_ranks(GetParam()), [&](Rank rank) { write_traces(rank, path); }); }, {path}));
}

INSTANTIATE_TEST_SUITE_P(Sizes, RankTraces,
                         ::testing::ValuesIn(conformance::rank_counts({1, 2, 3})), name_of_size);

}  // namespace
}  // namespace aisc
