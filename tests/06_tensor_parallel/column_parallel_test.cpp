// The column-parallel layer: forward as it is given, backward as it is written.
#include "06_tensor_parallel/column_parallel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/06_tensor_parallel/linear_by_hand.h"
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

using ColumnByHand = split::LinearByHand<ColumnParallelLinear>;

TEST(ColumnParallelBackward, TwoRanksByHand) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp);
    const Tensor dx = h.backward();
    const bool first = h.r == 0;
    EXPECT_TRUE(
        numbers_are(h.at("dx"), dx, {31, 42},
                    {{"dx is this rank's share: the sum over tp is missing",
                      first ? std::vector{1.0, 2.0} : std::vector{30.0, 40.0}},
                     {"dx was summed over all ranks of the world and not over tp", {62, 84}}}));
    EXPECT_TRUE(numbers_are(
        h.at("dW"), h.weight().grad(), first ? std::vector{5.0, 6.0} : std::vector{50.0, 60.0},
        {{"dW was summed over tp, and each rank has other rows of it", {55, 66}}}));
    EXPECT_TRUE(
        numbers_are(h.at("db"), h.bias().grad(), {first ? 1.0 : 10.0},
                    {{"db was summed over tp, and each rank has other elements of it", {11}}}));
  });
}

// The second micro-batch adds to the gradients of the first.
TEST(ColumnParallelBackward, AddsToTheGradients) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp);
    h.backward();
    EXPECT_TRUE(numbers_are(h.at("dx of the second micro-batch"), h.backward(), {31, 42}));
    const bool first = h.r == 0;
    EXPECT_TRUE(numbers_are(h.at("dW of two micro-batches"), h.weight().grad(),
                            first ? std::vector{10.0, 12.0} : std::vector{100.0, 120.0},
                            {{"the second overwrote the first",
                              first ? std::vector{5.0, 6.0} : std::vector{50.0, 60.0}}}));
    EXPECT_TRUE(numbers_are(h.at("db of two micro-batches"), h.bias().grad(), {first ? 2.0 : 20.0},
                            {{"the second overwrote the first", {first ? 1.0 : 10.0}}}));
  });
}

TEST(ColumnParallelBackward, IsTheSerialLayersOnAnyNumberOfRanks) {
  const LayerCase c = column_case(5, 12);
  split::expect_serial(serial(c), c, {1, 2, 3, 4});
}

TEST(ColumnParallelBackward, IsTheSerialLayersForDrawnSizes) {
  split::expect_serial_for_drawn_sizes("ColumnParallel", Columns::Whole, column_case);
}

TEST(ColumnParallelBackward, DefersWeightGradients) {
  LayerCase c = column_case(5, 12);
  c.deferred = true;
  split::expect_serial(serial(column_case(5, 12)), c, {1, 2, 3});
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp);
    DeferredGrads deferred;
    EXPECT_TRUE(numbers_are(h.at("dx"), h.backward({}, {.deferred = &deferred}), {31, 42}));
    EXPECT_FALSE(h.weight().has_grad) << "pass.deferred was given: dW is not computed yet";
    EXPECT_EQ(deferred.size(), 1u);
    deferred.run_all();
    EXPECT_TRUE(numbers_are(h.at("dW"), h.weight().grad(),
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
    EXPECT_TRUE(numbers_are(h.at("dx"), h.backward(std::move(saved)), to_doubles(expected),
                            {{"dx is of the GELU's output and not of its input, z", {31, 42}}}));
  });
}

// Of forward nothing is communicated, and it is given.
TEST(ColumnParallelGiven, ForwardIsTheColumnsOfTheWhole) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp);
    Saved saved;
    const Tensor y = h.forward(saved);
    EXPECT_TRUE(numbers_are(h.at("y"), y, {h.r == 0 ? 117.0 : 239.0}));
    EXPECT_EQ(saved.size(), 1u);
    split::expect_all_reduces(tp, 0, 0);
  });
}

TEST(ColumnParallelGiven, TheGeluBehindItKeepsWhatItIsGiven) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ColumnByHand h(rank, tp, Gelu::Behind);
    write_doubles(h.bias().value(), {h.r == 0 ? -17.5 : -38.0});
    Saved saved;
    const Tensor y = h.forward(saved);
    ASSERT_EQ(saved.size(), 2u) << "x and z";
    const Tensor z = saved.pop();
    EXPECT_TRUE(numbers_are(h.at("z"), z, {h.r == 0 ? -0.5 : 1.0}));
    const Tensor expected({1, 1}, DType::F64, rank.device);
    ops::gelu(expected, z);
    EXPECT_TRUE(numbers_are(h.at("y"), y, to_doubles(expected)));
  });
}

TEST(ColumnParallelGiven, StartsWithTheSerialLayersValues) {
  const LayerCase c = column_case(5, 12);
  split::expect_serial_values(serial(c), c, {1, 2, 3, 4});
}

}  // namespace
}  // namespace aisc
