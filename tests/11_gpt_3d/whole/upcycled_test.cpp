// A model with experts that begins where a dense one ended, on ranks that share its experts.
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "08_moe/expert_parallel.h"
#include "08_moe/more/upcycle.h"
#include "app/saved_weights.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

TrainConfig config_with(std::int64_t experts, int ep) {
  TrainConfig config = config_of({.dp = 2, .micro = 1});
  config.ep = ep;
  config.model.experts = {.count = experts, .router = "top2", .capacity = 0};
  return config;
}

double loss_of(const Trainer& trainer, const BatchSampler& data, Device& device) {
  std::vector<Batch> windows;
  if (trainer.data_ranks().rank() == 0) windows.push_back(data.batch(device, 0, 3));
  return trainer.evaluate(windows);
}

// Gates that add up to 1, and room for all: the dense model's loss, and weights that it had.
TEST(Upcycled, BeginsWithTheDenseModelsLoss) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> text = some_text();
  const TrainConfig dense = config_with(0, 1);
  const BatchSampler data(text, dense.model.context, dense.seed);
  double expected = 0;
  launch(launch_options({.ranks = 1}), [&](const Rank& rank) {
    Trainer trainer(rank, dense);
    for (int i = 0; i < 3; ++i) trainer.step(data);
    expected = loss_of(trainer, data, rank.device);
    CpuDevice host;
    write_weights(rank, folder.path(), trainer, host);
  });
  const std::string file = folder.path() + "/model.safetensors";
  launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
    StepParts parts = expert_parallel();
    parts.upcycle = upcycle;
    Trainer trainer(rank, config_with(4, 2), std::move(parts));
    const double drawn = loss_of(trainer, data, rank.device);
    CpuDevice host;
    read_weights(Safetensors(file), trainer, host);
    trainer.resume(0, 0);
    EXPECT_GT(std::abs(drawn - expected), 1e-3);
    EXPECT_NEAR(loss_of(trainer, data, rank.device), expected, 1e-12 * expected);
    Trainer without(rank, config_with(4, 2), expert_parallel());
    EXPECT_TRUE(error_says([&] { read_weights(Safetensors(file), without, host); },
                           {"a model without experts: expected one with them"}));
  });
}

}  // namespace
}  // namespace aisc
