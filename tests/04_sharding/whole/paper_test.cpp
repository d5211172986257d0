// The figures of the ZeRO paper, measured: the books of one rank of many, without numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "04_sharding/sharded_units.h"
#include "common/model/emulated_device.h"
#include "common/model/replicas.h"
#include "common/train/trainer.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

// Of weights and gradients in BF16 and AdamW's 12 bytes: 16 bytes a parameter.
GptConfig gpt(std::int64_t layers, std::int64_t width) {
  return {.layers = layers,
          .heads = width / 128,
          .width = width,
          .context = 1024,
          .vocabulary = 50257,
          .dtype = DType::BF16};
}
// The paper's three sizes, each met within 1 %.
struct Size {
  const char* name;
  double parameters;
  GptConfig config;
  enum class Print { Rounded, Truncated } print;  // what the paper does with digits that it drops
};
const Size kSizes[] = {{"7.5B", 7.5e9, gpt(36, 4096), Size::Print::Rounded},
                       {"128B", 128e9, gpt(101, 10240), Size::Print::Truncated},
                       {"1T", 1e12, gpt(127, 25600), Size::Print::Truncated}};

// Bytes of a model of exactly so many parameters, where one of `found` takes `bytes`.
double scaled(double bytes, double parameters, std::int64_t found) {
  const auto psi = static_cast<double>(found);
  EXPECT_NEAR(psi / parameters, 1, 0.01);
  return bytes * parameters / psi;
}

// GB with as many decimals as `like`. What lies a billionth below a digit is that digit.
std::string printed(double bytes, const std::string& like, Size::Print print) {
  const std::size_t point = like.find('.');
  const int decimals = point == std::string::npos ? 0 : static_cast<int>(like.size() - point - 1);
  const double digits = bytes * (1 + 1e-9) / 1e9 * std::pow(10, decimals);
  const double kept = print == Size::Print::Rounded ? std::round(digits) : std::floor(digits);
  return fmt::format("{:.{}f}", kept / std::pow(10, decimals), decimals);
}

double live_states(const Device& device) {
  const Ledger ledger = device.ledger();
  std::int64_t bytes = 0;
  for (const Purpose purpose : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer})
    bytes += ledger[purpose].live_bytes;
  return static_cast<double>(bytes);
}

// One rank of so many, on a machine without limits.
template <class Body>
void as_one_of(int ranks, const Body& body) {
  const Machine machine = find_machine("limitless");
  const Network network = machine.network(ranks);
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& own) {
    const auto world = make_replicas(ranks, network, own);
    body(Rank{*world, own.device, own.clock, own.trace});
  });
}

// Figure 1: 7.5 billion parameters on 64 ranks. Trained for a step: what there is between two.
TEST(ZeroPaper, Figure1OfATrainer) {
  const std::vector<std::uint8_t> text(2000, 7);
  const auto bytes = [&](const StepParts& parts) {
    double found = 0;
    as_one_of(64, [&](const Rank& rank) {
      TrainConfig config;
      config.model = kSizes[0].config;
      config.gradient_dtype = DType::BF16;
      config.batch = 64;
      config.recompute = Recompute::parse("block");
      Trainer trainer(rank, config, parts);
      const BatchSampler data(text, config.model.context, config.seed);
      trainer.step(data);
      found = scaled(live_states(rank.device), 7.5e9, trainer.parameters().parameter_count());
    });
    return found;
  };
  EXPECT_EQ(printed(bytes({}), "120", Size::Print::Rounded), "120");
  EXPECT_EQ(printed(bytes(sharded({.stage = 1})), "31.4", Size::Print::Rounded), "31.4");
  EXPECT_EQ(printed(bytes(sharded({.stage = 2})), "16.6", Size::Print::Rounded), "16.6");
  EXPECT_EQ(printed(bytes(sharded({.stage = 3})), "1.9", Size::Print::Rounded), "1.9");
}

// Table 1: GB of a rank, of stages 1, 2 and 3. The columns of 7.5B are rounded, those of 128B and
// 1T cut off: 4187.5 is printed as 4187.
struct Row {
  int ranks;
  std::array<std::array<const char*, 3>, 3> cells;  // by size, by stage
};
const Row kTable1[] = {
    {1, {{{"120", "120", "120"}, {"2048", "2048", "2048"}, {"16000", "16000", "16000"}}}},
    {4, {{{"52.5", "41.3", "30"}, {"896", "704", "512"}, {"7000", "5500", "4000"}}}},
    {16, {{{"35.6", "21.6", "7.5"}, {"608", "368", "128"}, {"4750", "2875", "1000"}}}},
    {64, {{{"31.4", "16.6", "1.88"}, {"536", "284", "32"}, {"4187", "2218", "250"}}}},
    {256, {{{"30.4", "15.4", "0.47"}, {"518", "263", "8"}, {"4046", "2054", "62.5"}}}},
    {1024, {{{"30.1", "15.1", "0.12"}, {"513", "257", "2"}, {"4011", "2013", "15.6"}}}}};

TEST(ZeroPaper, Table1OfLiveShards) {
  for (const Row& row : kTable1)
    as_one_of(row.ranks, [&](const Rank& rank) {
      for (std::size_t i = 0; i < std::size(kSizes); ++i)
        for (int stage = 1; stage <= 3; ++stage) {
          const Size& size = kSizes[i];
          const Model model = make_gpt(rank, size.config);
          ParameterStore store(rank.device, make_units(model),
                               {.value_dtype = DType::BF16,
                                .grad_dtype = DType::BF16,
                                .ranks = row.ranks,
                                .values = stage < 3,
                                .gradients = stage < 2});
          const ShardedUnits units(rank, model, store, {.stage = stage});
          const AdamW adamw(units.slices(), {});
          const std::string cell = row.cells[i][static_cast<std::size_t>(stage - 1)];
          EXPECT_EQ(
              printed(scaled(live_states(rank.device), size.parameters, store.parameter_count()),
                      cell, size.print),
              cell)
              << size.name << " on " << row.ranks << " ranks, stage " << stage;
        }
    });
}

}  // namespace
}  // namespace aisc
