// The row-parallel layer: forward as it is written, backward as it is given.
#include "06_tensor_parallel/row_parallel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/06_tensor_parallel/linear_by_hand.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

using split::Columns;
using split::LayerCase;
using Gelu = Linear::Gelu;

LayerCase row_case(std::int64_t in, std::int64_t out, const Shape& rows = {2, 3}) {
  return {.make =
              [=](const Rank& rank, Communicator& tp) {
                return std::make_unique<RowParallelLinear>(rank, tp, "layer", in, out, 0.3);
              },
          .input = {rows[0], rows[1], in},
          .output = {rows[0], rows[1], out},
          .input_is = Columns::Split};
}

using RowByHand = split::LinearByHand<RowParallelLinear>;

TEST(RowParallelForward, TwoRanksByHand) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    RowByHand h(rank, tp);
    Saved saved;
    const Tensor y = h.forward(saved);
    EXPECT_TRUE(numbers_are(
        h.at("y"), y, {117, 239},
        {{"every rank has added the bias, and the sum has it twice: add it to the sum", {217, 439}},
         {"the bias is missing here, or was added before the sum was over, which then wrote over "
          "it",
          {17, 39}},
         {"y is this rank's share: the sum over tp is missing",
          h.r == 0 ? std::vector{105.0, 215.0} : std::vector{112.0, 224.0}},
         {"y was summed over all ranks of the world and not over tp", {134, 278}}}));
    EXPECT_TRUE(numbers_are(h.at("x afterwards"), h.x, {h.r == 0 ? 5.0 : 6.0}));
    EXPECT_EQ(saved.size(), 1u) << "x";
  });
}

TEST(RowParallelForward, SumsOnceAndSendsNothingElse) {
  split::on_groups(3, [](const Rank& rank, Communicator& tp) {
    split::Owned owned(rank, std::make_unique<RowParallelLinear>(rank, tp, "layer", 6, 5));
    Saved saved;
    const Tensor x = random_tensor({4, 2}, DType::F64, rank.device, "x");
    const Tensor y = owned.layer->forward(x.share(), saved, {});
    EXPECT_EQ(y.shape(), (Shape{4, 5}));
    split::expect_all_reduces(tp, 1, 4 * 5 * 8);  // y, in F64
  });
}

TEST(RowParallelForward, IsTheSerialLayersOnAnyNumberOfRanks) {
  const LayerCase c = row_case(12, 5);
  split::expect_serial(serial(c), c, {1, 2, 3, 4});
}

TEST(RowParallelForward, IsTheSerialLayersForDrawnSizes) {
  split::expect_serial_for_drawn_sizes("RowParallel", Columns::Split, row_case);
}

// dy = (1 10), the same on both ranks.
TEST(RowParallelGiven, BackwardSendsNothing) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    RowByHand h(rank, tp);
    EXPECT_TRUE(numbers_are(h.at("dx"), h.backward(), {h.r == 0 ? 31.0 : 42.0}));
    EXPECT_TRUE(numbers_are(h.at("dW"), h.weight().grad(),
                            h.r == 0 ? std::vector{5.0, 50.0} : std::vector{6.0, 60.0}));
    EXPECT_TRUE(numbers_are(h.at("db, the same on all ranks"), h.bias().grad(), {1, 10},
                            {{"db was summed over tp", {2, 20}}}));
    split::expect_all_reduces(tp, 0, 0);
  });
}

TEST(RowParallelGiven, BackwardDefersWeightGradients) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    RowByHand h(rank, tp);
    DeferredGrads deferred;
    h.backward({}, {.deferred = &deferred});
    EXPECT_FALSE(h.weight().has_grad);
    deferred.run_all();
    EXPECT_TRUE(numbers_are(h.at("dW"), h.weight().grad(),
                            h.r == 0 ? std::vector{5.0, 50.0} : std::vector{6.0, 60.0}));
  });
}

TEST(RowParallelGiven, BackwardGoesThroughTheGeluBeforeIt) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    RowByHand h(rank, tp, Gelu::Before);
    const Tensor z = from_doubles({h.r == 0 ? 0.5 : -1.0}, {1, 1}, DType::F64, rank.device);
    const Tensor expected = from_doubles({h.r == 0 ? 31.0 : 42.0}, {1, 1}, DType::F64, rank.device);
    ops::gelu_backward(expected, expected, z);
    Saved saved;
    saved.push(z.share());
    EXPECT_TRUE(numbers_are(h.at("dx"), h.backward(std::move(saved)), to_doubles(expected)));
  });
}

TEST(RowParallelGiven, StartsWithTheSerialLayersValues) {
  const LayerCase c = row_case(12, 5);
  split::expect_serial_values(serial(c), c, {1, 2, 3, 4});
}

}  // namespace
}  // namespace aisc
