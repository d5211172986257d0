// Pipelines whose stages send bytes, and whose data-parallel ranks send factors.
#include <gtest/gtest.h>

#include <numeric>

#include "05_pipeline/pipelined.h"
#include "10_model_compression/more/i8_links.h"
#include "10_model_compression/more/power_sgd.h"
#include "tests/05_pipeline/whole/counted_comm.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

TrainConfig of_coded_stages(int pp, std::int64_t micro_batches, DType dtype = DType::F32) {
  TrainConfig c = odd_training(pp, 0, 2 * micro_batches, micro_batches, 4);
  c.model.dtype = dtype;
  c.model.dropout = 0;
  c.gradient_dtype = DType::F32;
  c.steps = 60;
  c.learning_rate = 1e-2;
  c.clip = 1;
  return c;
}

StepParts coded(const LinkCodes& codes, const std::string& schedule = "1f1b",
                Again again = Again::Never) {
  return pipelined({.schedule = schedule, .again = again, .codes = codes});
}

struct CodedRun {
  std::vector<double> losses;
  std::int64_t forward = 0, backward = 0;  // bytes of a step, from rank 0 to rank 1 and back
  double end() const { return std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10; }
};

CodedRun run_coded(const TrainConfig& config, const StepParts& parts, std::int64_t steps) {
  CodedRun run;
  CommCounts counts;
  const auto text = some_text();
  LaunchOptions options = launch_options({.ranks = config.pp});
  options.internals.decorate = counted(counts);
  launch(options, [&](const Rank& rank) {
    Trainer trainer(rank, config, parts);
    const BatchSampler data(text, config.model.context, config.seed);
    for (std::int64_t i = 0; i < steps; ++i) {
      const double loss = trainer.step(data).loss;
      if (rank.world.rank() == 0) run.losses.push_back(loss);
    }
  });
  run.forward = counts.of("pp forward", 0).sent().wire_bytes / steps;
  run.backward = counts.of("pp backward", 1).sent().wire_bytes / steps;
  return run;
}

// 3 micro-batches of 2 samples of 11 tokens of 15 numbers: 990 numbers, 66 tokens.
TEST(CodedStages, SendAByteANumberAndAScaleAToken) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const TrainConfig config = of_coded_stages(2, 3, dtype);
    const std::int64_t plain = 990 * static_cast<std::int64_t>(size_of(dtype)), code = 990 + 4 * 66;
    const auto expect_bytes = [&](const LinkCodes& codes, std::int64_t forward,
                                  std::int64_t backward) {
      const CodedRun run = run_coded(config, coded(codes), 2);
      EXPECT_EQ(run.forward, forward) << name_of(dtype) << ", activations of a step";
      EXPECT_EQ(run.backward, backward) << name_of(dtype) << ", their gradients";
    };
    expect_bytes({}, plain, plain);
    expect_bytes(i8_links(Coded::Activations), code, plain);
    expect_bytes(i8_links(Coded::ActivationsAndGradients), code, code);
  }
}

TEST(CodedStages, EndNearThoseThatSendAll) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const TrainConfig config = of_coded_stages(2, 3, dtype);
    const double plain = run_coded(config, coded({}), 60).end(),
                 forward = run_coded(config, coded(i8_links(Coded::Activations)), 60).end(),
                 both =
                     run_coded(config, coded(i8_links(Coded::ActivationsAndGradients)), 60).end();
    RecordProperty(std::string("plain_") + name_of(dtype), std::to_string(plain));
    RecordProperty(std::string("forward_") + name_of(dtype), std::to_string(forward));
    RecordProperty(std::string("both_") + name_of(dtype), std::to_string(both));
    EXPECT_NEAR(forward, plain, .05);
    EXPECT_NEAR(both, plain, .05);
  }
}

// Which schedule, and whether stages run forward again, is not seen: what has arrived is kept.
TEST(CodedStages, GiveTheSameInEverySchedule) {
  const TrainConfig config = of_coded_stages(3, 3);
  const LinkCodes codes = i8_links(Coded::ActivationsAndGradients);
  const auto losses_of = [&](const StepParts& parts) {
    return run_layout({.ranks = 3}, config, 3, parts).back().losses;
  };
  const std::vector<double> expected = losses_of(coded(codes));
  EXPECT_EQ(losses_of(coded(codes)), expected) << "once more";
  for (const Again again : {Again::OnArrival, Again::Early})
    EXPECT_EQ(losses_of(coded(codes, "1f1b", again)), expected);
  for (const char* schedule : {"gpipe", "zb-h1"}) {
    const std::vector<double> found = losses_of(coded(codes, schedule));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << schedule;
  }
  EXPECT_NE(losses_of(coded({})), expected) << "the codes are in use";
}

// On communicators that are late: what is evaluated passes the same links, and leaves nothing.
TEST(CodedStages, AreNotDisturbedByAnEvaluation) {
  const TrainConfig config = of_coded_stages(2, 3);
  const auto text = some_text();
  for (const char* schedule : {"zb-v", "2bw"})
    launch(late(2), [&](const Rank& rank) {
      const StepParts parts = coded(i8_links(Coded::ActivationsAndGradients), schedule);
      const BatchSampler data(text, config.model.context, config.seed);
      Trainer evaluated(rank, config, parts), other(rank, config, parts);
      for (int i = 0; i < 2; ++i) {
        std::vector<Batch> windows;
        windows.push_back(data.batch(rank.device, 0, 1));
        EXPECT_EQ(evaluated.evaluate(windows), evaluated.evaluate(windows));
        EXPECT_EQ(evaluated.step(data).loss, other.step(data).loss) << schedule;
      }
    });
}

TEST(CodedStages, TakeTheirTimeWithoutNumbers) {
  const TrainConfig config = of_coded_stages(2, 3);
  const Machine machine = find_machine("dgx-a100");
  const auto seconds = [&](bool meta) {
    double now = 0;
    const auto text = some_text();
    launch(on_machine(machine, 2, {.meta = meta}), [&](const Rank& rank) {
      Trainer trainer(rank, config, coded(i8_links(Coded::ActivationsAndGradients)));
      trainer.step(BatchSampler(text, config.model.context, config.seed));
      if (rank.world.rank() == 0) now = rank.clock.now();
    });
    return now;
  };
  EXPECT_NEAR(seconds(true), seconds(false), 1e-9);
}

// Two pipelines whose ranks sum factors are one.
TEST(PowerSgdStages, AreOnePipelineThatCompresses) {
  const TrainConfig config = odd_training(2, 0, 6, 3, 4);
  const StepParts parts = power_sgd(2, pipelined({}));
  EXPECT_TRUE(same_steps(run_layout({.ranks = 2}, config, 3, parts),
                         run_layout({.ranks = 4}, config, 3, parts)));
}

TEST(PowerSgdStages, TakeTheirTimeWithoutNumbers) {
  const TrainConfig config = of_coded_stages(1, 1);
  const Machine machine = find_machine("dgx-a100");
  const auto seconds = [&](bool meta) {
    double now = 0;
    const auto text = some_text();
    launch(on_machine(machine, 2, {.meta = meta}), [&](const Rank& rank) {
      Trainer trainer(rank, config, power_sgd(2));
      trainer.step(BatchSampler(text, config.model.context, config.seed));
      if (rank.world.rank() == 0) now = rank.clock.now();
    });
    return now;
  };
  EXPECT_NEAR(seconds(true), seconds(false), 1e-9);
}

}  // namespace
}  // namespace aisc
