// The figures of the ZeRO paper, measured: the books of one rank of many, without numbers.
#include <gtest/gtest.h>

#include "04_sharding/sharded_units.h"
#include "common/model/emulated_device.h"
#include "common/model/replicas.h"
#include "common/train/trainer.h"
#include "tests/04_sharding/whole/zero_paper.h"

namespace aisc {
namespace {

using namespace zero_paper;

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
