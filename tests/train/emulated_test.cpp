// Training on machines that are not there: with numbers the same run as everywhere, without them
// the same bytes, messages and seconds.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/model/emulated_device.h"
#include "common/nn/attention.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"
#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TrainConfig config_in(DType dtype, std::int64_t micro_batches = 1,
                      const std::string& recompute = "none") {
  TrainConfig c;
  c.model = odd_config(dtype, 0.1);
  c.gradient_dtype = dtype;
  c.recompute = Recompute::parse(recompute);
  c.batch = 12;
  c.micro_batches = micro_batches;
  c.clip = 0.05;
  return c;
}

// What a rank's books say after some steps.
struct Books {
  Ledger ledger;
  double seconds = 0;
  CommStats stats;
  std::map<std::string, double> seconds_by_part;
};

std::vector<Books> books_of(const LaunchOptions& options, const TrainConfig& config, int steps) {
  const std::vector<std::uint8_t> text = some_text();
  std::vector<Books> books(static_cast<std::size_t>(options.ranks));
  launch(options, [&](Rank rank) {
    Trainer trainer(rank, config);
    const BatchSampler data(text, config.model.context, config.seed);
    for (int i = 0; i < steps; ++i) trainer.step(data);
    books[static_cast<std::size_t>(rank.world.rank())] = {
        rank.device.ledger(), rank.clock.now(), rank.world.stats(), rank.trace.seconds_by_part()};
  });
  return books;
}

struct Case {
  int ranks;
  DType dtype;
  std::int64_t micro_batches;
  const char* recompute;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.ranks << " ranks, " << name_of(c.dtype) << ", " << c.micro_batches
       << " micro-batches, recompute " << c.recompute;
}

const Case kCases[] = {{1, DType::F64, 1, "none"},
                       {2, DType::F64, 2, "none"},
                       {3, DType::F64, 1, "block"},
                       {4, DType::F64, 3, "core"},
                       {10, DType::F64, 1, "every:2"}};
class Emulated : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(InF64, Emulated, ::testing::ValuesIn(kCases));

TEST_P(Emulated, WithNumbersIsTheSerialRun) {
  const TrainConfig config =
      config_in(GetParam().dtype, GetParam().micro_batches, GetParam().recompute);
  const Machine machine = find_machine("dgx-a100");
  const LaunchOptions options = on_machine(machine, GetParam().ranks, {.poison = true});
  EXPECT_TRUE(same_steps(run_layout({}, config, 2), run_layout({.options = options}, config, 2)));
}

class EmulatedBooks : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(InF64, EmulatedBooks, ::testing::ValuesIn(kCases));
INSTANTIATE_TEST_SUITE_P(InShorterTypes, EmulatedBooks,
                         ::testing::Values(Case{2, DType::F32, 1, "none"},
                                           Case{3, DType::BF16, 2, "block"}));

TEST_P(EmulatedBooks, AreTheSameWithoutNumbers) {
  const TrainConfig config =
      config_in(GetParam().dtype, GetParam().micro_batches, GetParam().recompute);
  const Machine machine = find_machine("dgx-a100");
  const auto [with, without] =
      std::pair(books_of(on_machine(machine, GetParam().ranks), config, 3),
                books_of(on_machine(machine, GetParam().ranks, {.meta = true}), config, 3));
  for (std::size_t r = 0; r < with.size(); ++r) {
    const Books &a = with[r], &b = without[r];
    EXPECT_GT(a.seconds, 0);
    EXPECT_EQ(a.seconds, b.seconds) << "rank " << r;
    EXPECT_EQ(a.seconds_by_part, b.seconds_by_part) << "rank " << r;
    expect_same_memory(a.ledger, b.ledger);
    EXPECT_EQ(a.ledger.cache_misses, b.ledger.cache_misses);
    EXPECT_EQ(a.ledger.cached_bytes, b.ledger.cached_bytes);
    EXPECT_EQ(a.stats.sent().messages, b.stats.sent().messages);
    EXPECT_EQ(a.stats.sent().wire_bytes, b.stats.sent().wire_bytes);
    EXPECT_EQ(a.stats.steps, b.stats.steps);
  }
}

// The same work on half of the machine's speed takes twice as long, where nothing is latency.
TEST(EmulatedTraining, TakesTheTimeOfItsMachine) {
  Machine fast = find_machine("dgx-a100");
  fast.launch_seconds = 0;
  fast.host_link = fast.node_link = {};
  Machine slow = fast;
  for (auto& [type, rate] : slow.flops) rate /= 2;
  slow.vector_flops /= 2;
  slow.memory_bandwidth /= 2;
  const TrainConfig config = config_in(DType::F64);
  const auto seconds = [&](const Machine& m) {
    return books_of(on_machine(m, 1, {.meta = true}), config, 2)[0].seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(slow), 2 * seconds(fast));
}

// Products of a step are the model FLOPs that are published; all in one place.
TEST(EmulatedTraining, SumOfProductsIsFlopsPerToken) {
  for (const char* recompute : {"none", "block", "core"}) {
    TrainConfig config = config_in(DType::F32, 2, recompute);
    const Machine machine = find_machine("dgx-a100");
    double products = 0, steps = 0;
    launch(on_machine(machine, 1, {.meta = true}), [&](Rank rank) {
      Trainer trainer(rank, config);
      rank.device.listen([&](const OpCost& cost) { products += cost.product ? cost.flops : 0; });
      const std::vector<std::uint8_t> text = some_text();
      const BatchSampler data(text, config.model.context, config.seed);
      trainer.step(data);
      steps = trainer.hardware_flops_per_step();
      rank.device.listen(nullptr);
    });
    EXPECT_EQ(products, steps) << recompute;
  }
}

// One rank of GPT-3 175B on 8 tensor-parallel ranks, 8 stages and 16 replicas: the layers of a
// stage in the middle, of which each holds an eighth of the columns. (Their sums are module 06's.)
TEST(EmulatedTraining, HoldsAStageOfGpt3) {
  const GptConfig gpt3{
      .layers = 96, .heads = 96, .width = 12288, .context = 2048, .dtype = DType::BF16};
  constexpr std::int64_t kRanks = 8;
  GptParts parts = gpt2_parts();
  parts.attention = [](const GptParts::Wanted& w) {
    const std::int64_t C = w.config.width;
    return in_sequence(w.rank, w.name,
                       std::make_unique<Linear>(w.rank, w.name + ".qkv", C, 3 * C / kRanks),
                       std::make_unique<CausalCore>(w.rank, w.name, w.config.heads / kRanks),
                       std::make_unique<Linear>(w.rank, w.name + ".project", C / kRanks, C));
  };
  parts.mlp = [](const GptParts::Wanted& w) {
    const std::int64_t C = w.config.width, hidden = 4 * C / kRanks;
    return in_sequence(
        w.rank, w.name,
        std::make_unique<Linear>(w.rank, w.name + ".fc", C, hidden, 0.02, Linear::Gelu::Behind),
        std::make_unique<Linear>(w.rank, w.name + ".project", hidden, C, 0.02,
                                 Linear::Gelu::Before));
  };
  const Machine machine = find_machine("superpod");
  launch(on_machine(machine, 1, {.meta = true}), [&](Rank rank) {
    const Model stage = make_gpt(rank, gpt3, parts, {12, 24});
    ParameterStore store(rank.device, make_units(stage),
                         {.value_dtype = DType::BF16, .grad_dtype = DType::BF16});
    store.initialize(1);
    const AdamW optimizer(slices_of(store.parameters()), {});
    constexpr std::int64_t C = 12288;
    // Of a block: matrices, their biases, two norms.
    EXPECT_EQ(store.parameter_count(),
              12 * (12 * C * C / kRanks + 3 * C / kRanks + C + 4 * C / kRanks + C + 4 * C));
    std::vector<Saved> saved(stage.layers.size());
    Tensor x({1, 2048, C}, DType::BF16, rank.device);
    x = forward_layers(stage, std::move(x), saved, {});
    EXPECT_GT(bytes_of(saved), std::int64_t{1} << 30);
    x = backward_layers(stage, std::move(x), saved, {});
    EXPECT_EQ(x.shape(), (Shape{1, 2048, C}));
    const auto peak = static_cast<double>(rank.device.ledger().total.peak_bytes);
    EXPECT_TRUE(peak > 16.0 * static_cast<double>(store.parameter_count()) && peak < 80e9) << peak;
    EXPECT_GT(rank.clock.now(), 0.05);
  });
}

}  // namespace
}  // namespace aisc
