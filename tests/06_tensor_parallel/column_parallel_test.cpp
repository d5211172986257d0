// The column-parallel layer: forward as it is given, backward as it is written.
#include "06_tensor_parallel/column_parallel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

using split::Columns;
using split::LayerCase;
using Gelu = Linear::Gelu;

LayerCase column_case(std::int64_t in, std::int64_t out, const Shape& rows = {2, 3}) {
  return {.make =
              [=](const Rank& rank, Communicator& tp) {
                return std::make_unique<ColumnParallelLinear>(rank, tp, "layer", in, out, 0.3);
              },
          .input = {rows[0], rows[1], in},
          .output = {rows[0], rows[1], out},
          .output_is = Columns::Split};
}

// W = (1 2; 3 4): rank 0 has the row 1 2, rank 1 the row 3 4. x = (5 6), dy = (1 10).
struct ColumnByHand {
  ColumnByHand(const Rank& rank, Communicator& tp, Gelu gelu = Gelu::None)
      : r(tp.rank()),
        owned(rank, std::make_unique<ColumnParallelLinear>(rank, tp, "layer", 2, 2, 0.02, gelu)),
        x(from_doubles({5, 6}, {1, 2}, DType::F64, rank.device)),
        dy(from_doubles({r == 0 ? 1.0 : 10.0}, {1, 1}, DType::F64, rank.device)) {
    write_doubles(weight().value(), r == 0 ? std::vector{1.0, 2.0} : std::vector{3.0, 4.0});
    write_doubles(bias().value(), {r == 0 ? 100.0 : 200.0});
  }
  Parameter& weight() const { return *owned.layer->parameters()[0]; }
  Parameter& bias() const { return *owned.layer->parameters()[1]; }
  Tensor backward(const Pass& pass = {}) {
    Saved saved;
    saved.push(x.share());
    return owned.layer->backward(dy.share(), saved, pass);
  }

  int r;
  split::Owned owned;
  Tensor x, dy;
};

std::string on(const ColumnByHand& h, const char* what) {
  return fmt::format("2 ranks, rank {}: {}", h.r, what);
}

TEST(ColumnParallelBackward, TwoRanksByHand) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp);
    const Tensor dx = h.backward();
    const bool first = h.r == 0;
    EXPECT_TRUE(
        numbers_are(on(h, "dx"), dx, {31, 42},
                    {{"dx is this rank's share: the sum over tp is missing",
                      first ? std::vector{1.0, 2.0} : std::vector{30.0, 40.0}},
                     {"dx was summed over all ranks of the world and not over tp", {62, 84}}}));
    EXPECT_TRUE(numbers_are(
        on(h, "dW"), h.weight().grad(), first ? std::vector{5.0, 6.0} : std::vector{50.0, 60.0},
        {{"dW was summed over tp, and each rank has other rows of it", {55, 66}}}));
    EXPECT_TRUE(
        numbers_are(on(h, "db"), h.bias().grad(), {first ? 1.0 : 10.0},
                    {{"db was summed over tp, and each rank has other elements of it", {11}}}));
  });
}

// The second micro-batch adds to the gradients of the first.
TEST(ColumnParallelBackward, AddsToTheGradients) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp);
    h.backward();
    EXPECT_TRUE(numbers_are(on(h, "dx of the second micro-batch"), h.backward(), {31, 42}));
    const bool first = h.r == 0;
    EXPECT_TRUE(numbers_are(on(h, "dW of two micro-batches"), h.weight().grad(),
                            first ? std::vector{10.0, 12.0} : std::vector{100.0, 120.0},
                            {{"the second overwrote the first",
                              first ? std::vector{5.0, 6.0} : std::vector{50.0, 60.0}}}));
    EXPECT_TRUE(numbers_are(on(h, "db of two micro-batches"), h.bias().grad(), {first ? 2.0 : 20.0},
                            {{"the second overwrote the first", {first ? 1.0 : 10.0}}}));
  });
}

TEST(ColumnParallelBackward, IsTheSerialLayersOnAnyNumberOfRanks) {
  const LayerCase c = column_case(5, 12);
  const RunRecord one = split::run_layer(serial(c), 1, 1);
  for (const int t : {1, 2, 3, 4})
    EXPECT_TRUE(same_run(one, split::run_layer(c, t), kSameRunF64)) << t << " ranks";
}

TEST(ColumnParallelBackward, IsTheSerialLayersForDrawnSizes) {
  for (const int t : {2, 3, 7}) {
    const auto size = [&](const char* what, std::int64_t most) {
      return drawn(fmt::format("{} of ColumnParallel on {} ranks", what, t), 1, most);
    };
    const LayerCase c = column_case(size("inputs", 20), t * size("outputs", 6),
                                    {size("samples", 3), size("tokens", 5)});
    const RunRecord one = split::run_layer(serial(c), 1, 1);
    EXPECT_TRUE(same_run(one, split::run_layer(c, t), kSameRunF64))
        << t << " ranks, " << c.input.to_string() << " to " << c.output.to_string();
  }
}

TEST(ColumnParallelBackward, DefersWeightGradients) {
  LayerCase c = column_case(5, 12);
  const RunRecord one = split::run_layer(serial(c), 1, 1);
  c.deferred = true;
  for (const int t : {1, 2, 3})
    EXPECT_TRUE(same_run(one, split::run_layer(c, t), kSameRunF64)) << t << " ranks";
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp);
    DeferredGrads deferred;
    EXPECT_TRUE(numbers_are(on(h, "dx"), h.backward({.deferred = &deferred}), {31, 42}));
    EXPECT_FALSE(h.weight().has_grad) << "pass.deferred was given: dW is not computed yet";
    EXPECT_EQ(deferred.size(), 1u);
    deferred.run_all();
    EXPECT_TRUE(numbers_are(on(h, "dW"), h.weight().grad(),
                            h.r == 0 ? std::vector{5.0, 6.0} : std::vector{50.0, 60.0}));
  });
}

// As behind the GELU of another layer: dx = dy W gelu'(z), which every rank multiplies its own
// share with.
TEST(ColumnParallelBackward, GoesThroughTheGeluBeforeIt) {
  CpuDevice host;
  const Tensor one = from_doubles({31, 42}, {1, 2}, DType::F64, host);
  const Tensor z = from_doubles({0.5, -1}, {1, 2}, DType::F64, host);
  const Tensor expected({1, 2}, DType::F64, host);
  ops::gelu_backward(expected, one, z);
  split::on_groups(2, [&](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp, Gelu::Before);
    Saved saved;
    saved.push(from_doubles({0.5, -1}, {1, 2}, DType::F64, rank.device));
    saved.push(h.x.share());
    const Tensor dx = h.owned.layer->backward(h.dy.share(), saved, {});
    EXPECT_TRUE(numbers_are(on(h, "dx"), dx, to_doubles(expected),
                            {{"dx is of the GELU's output and not of its input, z", {31, 42}}}));
  });
}

// Of forward nothing is communicated, and it is given.
TEST(ColumnParallelGiven, ForwardIsTheColumnsOfTheWhole) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp);
    Saved saved;
    const Tensor y = h.owned.layer->forward(h.x.share(), saved, {});
    EXPECT_TRUE(numbers_are(on(h, "y"), y, {h.r == 0 ? 117.0 : 239.0}));
    EXPECT_EQ(saved.size(), 1u);
    for (const CommStats::Row& row : tp.stats().rows) EXPECT_EQ(row.calls, 0);
  });
}

TEST(ColumnParallelGiven, TheGeluBehindItKeepsWhatItIsGiven) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp, Gelu::Behind);
    write_doubles(h.bias().value(), {h.r == 0 ? -17.5 : -38.0});
    Saved saved;
    const Tensor y = h.owned.layer->forward(h.x.share(), saved, {});
    ASSERT_EQ(saved.size(), 2u) << "x and z";
    const Tensor z = saved.pop();
    EXPECT_TRUE(numbers_are(on(h, "z"), z, {h.r == 0 ? -0.5 : 1.0}));
    const Tensor expected({1, 1}, DType::F64, rank.device);
    ops::gelu(expected, z);
    EXPECT_TRUE(numbers_are(on(h, "y"), y, to_doubles(expected)));
  });
}

TEST(ColumnParallelGiven, StartsWithTheSerialLayersValues) {
  split::expect_serial_values(
      [](const Rank& rank, Communicator&) {
        return std::make_unique<Linear>(rank, "layer", 5, 12);
      },
      [](const Rank& rank, Communicator& tp) {
        return std::make_unique<ColumnParallelLinear>(rank, tp, "layer", 5, 12);
      },
      {1, 2, 3, 4});
}

TEST(ColumnParallelGiven, SaysWhichLayerDoesNotDivide) {
  split::on_groups(
      4,
      [](const Rank& rank, Communicator& tp) {
        EXPECT_EQ(message_of([&] { ColumnParallelLinear(rank, tp, "blocks.0.mlp.fc", 3, 10); }),
                  "blocks.0.mlp.fc: 10 outputs over 4 ranks of tp: expected a multiple of 4");
      },
      1);
}

}  // namespace
}  // namespace aisc
