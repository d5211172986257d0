// Around Adafactor: the names and bytes of its state, runs without numbers, and what it refuses.
#include "04_sharding/adafactor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/emulated_device.h"
#include "tests/04_sharding/adafactor_oracle.h"
#include "tests/support/error_says.h"
#include "tests/support/message_of.h"
#include "tests/support/some_gpu.h"

namespace aisc {
namespace {

using namespace oracle;

TEST(AdafactorGiven, NamesItsState) {
  launch({.bind = false}, [](const Rank& rank) {
    const std::vector<Parameter> model{parameter("a", {3, 5}), parameter("b", {4})};
    const Tensor w = random_tensor({19}, DType::BF16, rank.device, "w");
    const Adafactor adafactor(rank, pointers(model), cut(model, w, w, {0, 19}, 10), {});
    std::vector<std::string> found;
    for (const Optimizer::State& state : adafactor.state())
      found.push_back(state.name + " " + std::to_string(state.value.count()) + " " +
                      (state.parameter ? "of " + state.parameter->name : "of all") + " " +
                      std::to_string(state.begin));
    const std::vector<std::string> expected{"a/master 10 of a 0", "a/master 5 of a 10",
                                            "b/master 4 of b 0",  "b/v 4 of b 0",
                                            "a/row 3 of all 0",   "a/column 5 of all 0"};
    EXPECT_EQ(found, expected);
    EXPECT_TRUE(adafactor.own_state().empty());
  });
}

// Of what is no matrix every element has a second moment of its own.
TEST(AdafactorGiven, VectorsHaveWholeMoments) {
  const std::vector<Parameter> model{parameter("b", {drawn("count of vector", 5, 90)}, true),
                                     parameter("c", {7, 1}), parameter("d", {1, 3})};
  for (const int ranks : {1, 3})
    expect_formula(std::to_string(ranks) + " ranks",
                   {.model = model,
                    .options = {.weight_decay = .1, .slices = Slices::Divided},
                    .ranks = ranks});
}

std::int64_t optimizer_bytes(const Device& device) {
  return device.ledger()[Purpose::Optimizer].live_bytes;
}

// n + m numbers for a matrix, on each rank, however little of it a rank has.
TEST(AdafactorGiven, KeepsRowsAndColumnsOnly) {
  const std::vector<Parameter> model{parameter("a", {70, 50}), parameter("b", {9}),
                                     parameter("c", {2, 30})};
  const std::int64_t n = count_of(model);
  const auto bytes = [&](const Rank& rank, DType dtype, Slices slices, Range own) {
    const Tensor w = random_tensor({n}, dtype, rank.device, "w");
    const std::int64_t before = optimizer_bytes(rank.device);
    const Adafactor adafactor(rank, pointers(model), cut(model, w, w, own), {.slices = slices});
    return optimizer_bytes(rank.device) - before;
  };
  launch({.bind = false}, [&](const Rank& rank) {
    constexpr std::int64_t kNumbers = 70 + 50 + 9 + 2 + 30;
    EXPECT_EQ(bytes(rank, DType::F32, Slices::OfAll, {0, n}), 4 * kNumbers);
    EXPECT_EQ(bytes(rank, DType::F64, Slices::OfAll, {0, n}), 8 * kNumbers);
    EXPECT_EQ(bytes(rank, DType::BF16, Slices::OfAll, {0, n}), 4 * (kNumbers + n)) << "and masters";
  });
  launch({.ranks = 3, .bind = false}, [&](const Rank& rank) {
    // Rank 0 has a part of a, rank 1 nothing, rank 2 the others.
    const std::vector<Range> parts{{0, 3507}, {3507, 3507}, {3507, n}};
    const auto r = static_cast<std::size_t>(rank.world.rank());
    EXPECT_EQ(bytes(rank, DType::F64, Slices::Divided, parts[r]),
              8 * (152 + std::vector<std::int64_t>{7, 0, 2}[r]))
        << "rank " << r;
  });
}

// Without numbers: the same memory and the same messages, and time passes.
TEST(AdafactorGiven, RunsWithoutNumbers) {
  Machine machine;
  machine.name = "by hand";
  machine.flops = {{DType::F32, 1e12}};
  machine.vector_flops = 1e12;
  machine.memory_bandwidth = 1;
  machine.ranks_per_node = 2;
  machine.node_link = {1e-5, 1e-9};
  const std::vector<Parameter> model{parameter("a", {300, 500}), parameter("b", {64})};
  const std::int64_t n = count_of(model);
  launch(on_machine(machine, 2, {.meta = true}), [&](const Rank& rank) {
    const Tensor w({n}, DType::BF16, rank.device), g({n}, DType::F32, rank.device);
    const std::int64_t half = n / 2, r = rank.world.rank();
    Adafactor adafactor(rank, pointers(model), cut(model, w, g, {half * r, half * (r + 1)}),
                        kDivided);
    EXPECT_EQ(optimizer_bytes(rank.device), 4 * (half + 800 + 64 * r));
    const CommStats::Row before = rank.world.stats()[CommOp::AllReduce];
    EXPECT_EQ(before.calls, 0) << "there is nothing to agree on";
    double bytes = 0;
    rank.device.listen([&](const OpCost& cost) {
      if (std::string_view(cost.operation) == "adafactor") bytes += cost.bytes;
    });
    const double began = rank.clock.now();
    adafactor.step({.learning_rate = .1});
    const CommStats::Row after = rank.world.stats()[CommOp::AllReduce];
    EXPECT_EQ(after.calls - before.calls, 2);
    EXPECT_EQ(after.payload_bytes - before.payload_bytes, 800 * 4 + 2 * 16);
    // Each pass reads the gradient. The first writes the moments of the vector, the second reads
    // these and the weights, the third writes master and weight, too.
    EXPECT_EQ(bytes, static_cast<double>(half * (4 + 8 + 14) + 64 * r * (8 + 4 + 4)));
    EXPECT_GE(rank.clock.now() - began, bytes) << "at a byte a second";
  });
}

// The message of making one of F32 weights on one rank, after `change` of its slices and options.
std::vector<Parameter> two_parameters() { return {parameter("a", {3, 5}), parameter("b", {4})}; }
template <class Change>
std::string error(const std::vector<Parameter>& model, const Change& change, Device& device,
                  DType dtype = DType::F32) {
  std::string message;
  launch({.bind = false}, [&](const Rank& rank) {
    const Tensor w({19}, dtype, device);
    std::vector<OptimizerSlice> slices = cut(model, w, w, {0, 19});
    Adafactor::Options options;
    change(slices, options);
    message = message_of([&] { Adafactor(rank, pointers(model), slices, options); });
  });
  return message;
}

TEST(AdafactorGiven, SaysWhichOptionsMakeNoSense) {
  CpuDevice host;
  const auto with = [&](const Adafactor::Options& wrong) {
    return error(
        two_parameters(), [&](auto&, auto& options) { options = wrong; }, host);
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({.clip = 0}),
            "Adafactor: clip 0, decay_power 0.8, eps1 1e-30, eps2 0.001, weight_decay 0: expected "
            "> 0, > 0, at least 1.18e-38, >= 0, >= 0");
  EXPECT_NE(with({.clip = std::nan("")}), "");
  EXPECT_NE(with({.decay_power = 0}), "");
  EXPECT_NE(with({.eps1 = 1e-40}), "");
  EXPECT_NE(with({.eps2 = -1}), "");
  EXPECT_NE(with({.weight_decay = -1}), "");
}

TEST(AdafactorGiven, SaysWhichSlicesAreWrong) {
  CpuDevice host;
  const std::vector<Parameter> model = two_parameters();
  const auto with = [&](const auto& change) { return error(model, change, host); };
  const Parameter other = parameter("other", {4});
  for (const Parameter* unknown : {static_cast<const Parameter*>(nullptr), &other})
    EXPECT_EQ(with([&](auto& slices, auto&) { slices[1].parameter = unknown; }),
              "Adafactor: b is a slice of none of 2 parameters");
  EXPECT_EQ(with([](auto& slices, auto&) { slices[1].begin = 1; }),
            "Adafactor: b is elements 1 to 5 of 4");
  EXPECT_EQ(with([](auto& slices, auto&) { slices[0].begin = -1; }),
            "Adafactor: a is elements -1 to 14 of 15");
  EXPECT_EQ(with([](auto& slices, auto&) { slices.pop_back(); }),
            "Adafactor: slices have 0 elements of b, expected each of its 4 once");
  EXPECT_TRUE(error_says(
      [&] {
        launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
          const Tensor w({19}, DType::F32, rank.device);
          Adafactor(rank, pointers(model), cut(model, w, w, {0, 19}), kDivided);
        });
      },
      {"slices have 30 elements of a, expected each of its 15 once"}))
      << "both ranks have everything, and are to divide it";
  std::vector<Parameter> split = model;
  split[0] = split_parameter("a", {6, 5}, 0, 1, 2, Init::constant(0), true);
  EXPECT_EQ(error(
                split, [](auto&, auto&) {}, host),
            "Adafactor: a is (3, 5) of (6, 5): other ranks have some of its rows or columns");
}

TEST(AdafactorGiven, SaysWhichWeightsItCannotMove) {
  CpuDevice host, other;
  SomeGpu elsewhere;
  const auto with = [&](Device& device, DType dtype) {
    return error(
        two_parameters(), [](auto&, auto&) {}, device, dtype);
  };
  const auto with_b_of = [&](DType dtype, Device& device) {
    const Tensor b({4}, dtype, device);
    return error(
        two_parameters(), [&](auto& slices, auto&) { slices[1].weight = b; }, host);
  };
  EXPECT_EQ(with(host, DType::F16), "Adafactor: a is F16, expected F32, BF16 or F64");
  EXPECT_EQ(with(elsewhere, DType::F32),
            "Adafactor: a is on cuda:0, expected the host, and one device of all weights");
  EXPECT_EQ(with_b_of(DType::F32, other),
            "Adafactor: b is on cpu, expected the host, and one device of all weights");
  EXPECT_EQ(with_b_of(DType::F64, host), "Adafactor: 1 of 2 slices are F64, expected all or none");
}

}  // namespace
}  // namespace aisc
