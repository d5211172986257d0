// A run that is stopped, saved and taken up again goes on bitwise as if nothing had happened.
#include "app/run_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "app/saved_model.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/devices.h"
#include "tests/support/error_says.h"
#include "tests/support/run_layout.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

struct Precision {
  std::string name;
  DType dtype, gradients;
  DeviceKind kind = DeviceKind::Cpu;
};

std::vector<Precision> precisions() {
  std::vector<Precision> all;
  for (const DeviceKind kind : device_kinds())
    for (const Precision& p :
         {Precision{"f64", DType::F64, DType::F64}, Precision{"f32", DType::F32, DType::F32},
          Precision{"bf16", DType::BF16, DType::BF16},
          Precision{"bf16_f32", DType::BF16, DType::F32}})
      all.push_back({p.name + "_" + device_kind_name(kind), p.dtype, p.gradients, kind});
  return all;
}

TrainConfig config_in(const Precision& precision) {
  TrainConfig config;
  config.model = odd_config(precision.dtype, 0.1);
  config.gradient_dtype = precision.gradients;
  config.batch = 6;
  config.micro_batches = 2;
  config.steps = 10;
  config.warmup_steps = 2;
  config.clip = 0.5;
  return config;
}

class RunCheckpoint : public ::testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam().kind)) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(RunCheckpoint, ContinuesBitwiseAsIfNeverStopped) {
  const TemporaryFolder folder;
  const TrainConfig config = config_in(GetParam());
  const auto text = some_text();
  const BatchSampler data(text, config.model.context, config.seed);
  TestWorld world(GetParam().kind);
  Trainer whole(world.rank, config);
  for (int i = 0; i < 4; ++i) whole.step(data);
  const std::string path =
      save_run(world.rank, folder.path(), whole, {.config = "{}", .corpus_hash = 5});

  TestWorld other_world(GetParam().kind);
  TrainConfig other = config;
  Trainer resumed(other_world.rank, other);
  const Checkpoint checkpoint = read_checkpoint(path);
  restore_run(other_world.rank, checkpoint, resumed);
  EXPECT_EQ(resumed.steps_taken(), 4);
  EXPECT_EQ(resumed.samples_taken(), 24);
  EXPECT_TRUE(same_bits(resumed.parameters().values(), whole.parameters().values()));
  for (int i = 0; i < 4; ++i) {
    const StepReport a = whole.step(data), b = resumed.step(data);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.gradient_norm, b.gradient_norm);
    EXPECT_EQ(a.learning_rate, b.learning_rate);
  }
  EXPECT_TRUE(same_bits(resumed.parameters().values(), whole.parameters().values()));
  const auto a = whole.optimizer().state(), b = resumed.optimizer().state();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(same_bits(a[i].value, b[i].value)) << a[i].name;
}

INSTANTIATE_TEST_SUITE_P(Precisions, RunCheckpoint, ::testing::ValuesIn(precisions()),
                         [](const auto& test) { return test.param.name; });

TEST(RunState, ComesBackFromItsJson) {
  const RunState state{
      .config = "{\"a\":{\"b\":1}}", .corpus_hash = 0xfedcba9876543210u, .samples = 77};
  const RunState back = RunState::from_json(state.to_json(), "x");
  EXPECT_EQ(back.config, state.config);
  EXPECT_EQ(back.corpus_hash, state.corpus_hash);
  EXPECT_EQ(back.samples, 77);
  EXPECT_FALSE(back.updates) << "as earlier versions wrote it";
  RunState counted = state;
  counted.updates = 308;
  EXPECT_EQ(RunState::from_json(counted.to_json(), "x").updates, 308);
  EXPECT_TRUE(error_says([] { RunState::from_json("{}", "x"); }, {"x", "not a checkpoint"}));
  EXPECT_TRUE(error_says([] { RunState::from_json("[1]", "x"); }, {"x", "not a checkpoint"}));
}

TEST(RunState, WithoutUpdatesIsToldWhereItMatters) {
  RunState state{.config = R"({"pipeline":{"schedule":"1f1b"}})"};
  EXPECT_EQ(updates_remark(state, "1f1b"), "");
  EXPECT_NE(updates_remark(state, "pipedream"), "");
  state.config = R"({"pipeline":{"schedule":"pipedream"}})";
  EXPECT_NE(updates_remark(state, "1f1b"), "");
  state.updates = 12;
  EXPECT_EQ(updates_remark(state, "1f1b"), "");
}

TEST(RunCheckpointOf, AModelGeneratesWithoutGradients) {
  const TemporaryFolder folder;
  TestWorld world;
  const TrainConfig config = config_in({"", DType::F32, DType::F32});
  const Trainer trainer(world.rank, config);
  save_run(world.rank, folder.path("checkpoints"), trainer, {.config = "{}"});
  const auto silent = [](const std::string&) {};
  const std::string weights = weights_at(folder.path(), silent);
  EXPECT_EQ(weights, folder.path("checkpoints/step_000000/model.safetensors"));
  const std::string run = std::filesystem::relative(folder.path()).string();
  for (const char* of : {"", "checkpoints/step_000000", "checkpoints/step_000000/"})
    EXPECT_EQ(run_of(folder.path(of)), run);
  std::filesystem::copy(folder.path("checkpoints/step_000000"), folder.path("copied"));
  EXPECT_TRUE(error_says([&] { run_of(folder.path("copied")); }, {"copied", "no run to go on"}));
  TestWorld other;
  const SavedModel saved(other.rank, weights, DType::F32);
  EXPECT_EQ(other.device.ledger()[Purpose::Gradients].peak_bytes, 0);
  // The padding of the vocabulary may differ, the logits of its tokens may not.
  const auto logits = [&](TestWorld& of, const Model& model) {
    const Tensor all = forward(model, random_tokens(of.device, 2, 5, config.model.vocabulary, 3));
    const std::vector<double> values = to_doubles(all);
    std::vector<double> known;
    for (std::int64_t i = 0; i < all.count(); ++i)
      if (i % all.shape()[2] < config.model.vocabulary)
        known.push_back(values[static_cast<std::size_t>(i)]);
    return known;
  };
  EXPECT_EQ(logits(other, saved.model), logits(world, trainer.model()));
  EXPECT_TRUE(
      error_says([&] { find_checkpoint(folder.path("nothing"), silent); }, {"not a folder"}));
  std::filesystem::create_directory(folder.path("empty"));
  EXPECT_TRUE(error_says([&] { find_checkpoint(folder.path("empty"), silent); },
                         {"no intact checkpoint", folder.path("empty")}));
  EXPECT_TRUE(error_says([&] { run_of(folder.path("empty")); }, {"no intact checkpoint"}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("empty")));
  std::filesystem::create_symlink("circle", folder.path("circle"));
  EXPECT_TRUE(error_says([&] { run_of(folder.path("circle")); }, {"circle", "not a folder"}));
  EXPECT_EQ(weights_at(folder.path("circle"), silent), folder.path("circle"));
}

// The rows that pad the vocabulary are 0 and stay 0, so that leaving them out of a file loses
// nothing.
TEST(RunCheckpointOf, PaddingIsZeroFromTheStart) {
  TestWorld world;
  const TrainConfig config = config_in({"", DType::F32, DType::F32});
  Trainer trainer(world.rank, config);
  const auto text = some_text();
  const BatchSampler data(text, config.model.context, config.seed);
  for (int i = 0; i < 3; ++i) {
    const Parameter& table = *trainer.parameters().parameters()[0];
    ASSERT_EQ(table.shape[0], 16);
    for (const double x : to_doubles(table.value().rows(13, 16))) EXPECT_EQ(x, 0.0);
    trainer.step(data);
  }
}

}  // namespace
}  // namespace aisc
