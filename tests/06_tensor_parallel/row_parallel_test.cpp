// The row-parallel layer: forward as it is written, backward as it is given.
#include "06_tensor_parallel/row_parallel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
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

// W = (1 2; 3 4): rank 0 has the column 1 3, rank 1 the column 2 4. x = (5 6), b = (100 200).
struct RowByHand {
  RowByHand(const Rank& rank, Communicator& tp, Gelu gelu = Gelu::None)
      : r(tp.rank()),
        owned(rank, std::make_unique<RowParallelLinear>(rank, tp, "layer", 2, 2, 0.02, gelu)),
        x(from_doubles({r == 0 ? 5.0 : 6.0}, {1, 1}, DType::F64, rank.device)) {
    write_doubles(weight().value(), r == 0 ? std::vector{1.0, 3.0} : std::vector{2.0, 4.0});
    write_doubles(bias().value(), {100, 200});
  }
  Parameter& weight() const { return *owned.layer->parameters()[0]; }
  Parameter& bias() const { return *owned.layer->parameters()[1]; }

  int r;
  split::Owned owned;
  Tensor x;
};

std::string on(const RowByHand& h, const char* what) {
  return fmt::format("2 ranks, rank {}: {}", h.r, what);
}

TEST(RowParallelForward, TwoRanksByHand) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    RowByHand h(rank, tp);
    Saved saved;
    const Tensor y = h.owned.layer->forward(h.x.share(), saved, {});
    EXPECT_TRUE(numbers_are(
        on(h, "y"), y, {117, 239},
        {{"every rank has added the bias, and the sum has it twice: add it to the sum", {217, 439}},
         {"the bias is missing here, or was added before the sum was over, which then wrote over "
          "it",
          {17, 39}},
         {"y is this rank's share: the sum over tp is missing",
          h.r == 0 ? std::vector{105.0, 215.0} : std::vector{112.0, 224.0}},
         {"y was summed over all ranks of the world and not over tp", {134, 278}}}));
    EXPECT_TRUE(numbers_are(on(h, "x afterwards"), h.x, {h.r == 0 ? 5.0 : 6.0}));
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
    const CommStats stats = tp.stats();
    EXPECT_EQ(stats[CommOp::AllReduce].calls, 1) << "sums in forward";
    EXPECT_EQ(stats[CommOp::AllReduce].payload_bytes, 4 * 5 * 8) << "bytes: y, in F64";
    std::int64_t calls = 0;
    for (const CommStats::Row& row : stats.rows) calls += row.calls;
    EXPECT_EQ(calls, 1) << "operations of tp";
  });
}

TEST(RowParallelForward, IsTheSerialLayersOnAnyNumberOfRanks) {
  const LayerCase c = row_case(12, 5);
  const RunRecord one = split::run_layer(serial(c), 1, 1);
  for (const int t : {1, 2, 3, 4})
    EXPECT_TRUE(same_run(one, split::run_layer(c, t), kSameRunF64)) << t << " ranks";
}

TEST(RowParallelForward, IsTheSerialLayersForDrawnSizes) {
  for (const int t : {2, 3, 7}) {
    const auto size = [&](const char* what, std::int64_t most) {
      return drawn(fmt::format("{} of RowParallel on {} ranks", what, t), 1, most);
    };
    const LayerCase c = row_case(t * size("inputs", 6), size("outputs", 20),
                                 {size("samples", 3), size("tokens", 5)});
    const RunRecord one = split::run_layer(serial(c), 1, 1);
    EXPECT_TRUE(same_run(one, split::run_layer(c, t), kSameRunF64))
        << t << " ranks, " << c.input.to_string() << " to " << c.output.to_string();
  }
}

// dy = (1 10), the same on both ranks.
TEST(RowParallelGiven, BackwardSendsNothing) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    RowByHand h(rank, tp);
    Saved saved;
    saved.push(h.x.share());
    const Tensor dy = from_doubles({1, 10}, {1, 2}, DType::F64, rank.device);
    const Tensor dx = h.owned.layer->backward(dy.share(), saved, {});
    EXPECT_TRUE(numbers_are(on(h, "dx"), dx, {h.r == 0 ? 31.0 : 42.0}));
    EXPECT_TRUE(numbers_are(on(h, "dW"), h.weight().grad(),
                            h.r == 0 ? std::vector{5.0, 50.0} : std::vector{6.0, 60.0}));
    EXPECT_TRUE(numbers_are(on(h, "db, the same on all ranks"), h.bias().grad(), {1, 10},
                            {{"db was summed over tp", {2, 20}}}));
    for (const CommStats::Row& row : tp.stats().rows) EXPECT_EQ(row.calls, 0);
  });
}

TEST(RowParallelGiven, BackwardDefersWeightGradients) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    RowByHand h(rank, tp);
    Saved saved;
    saved.push(h.x.share());
    DeferredGrads deferred;
    h.owned.layer->backward(from_doubles({1, 10}, {1, 2}, DType::F64, rank.device), saved,
                            {.deferred = &deferred});
    EXPECT_FALSE(h.weight().has_grad);
    deferred.run_all();
    EXPECT_TRUE(numbers_are(on(h, "dW"), h.weight().grad(),
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
    saved.push(h.x.share());
    const Tensor dx =
        h.owned.layer->backward(from_doubles({1, 10}, {1, 2}, DType::F64, rank.device), saved, {});
    EXPECT_TRUE(numbers_are(on(h, "dx"), dx, to_doubles(expected)));
  });
}

TEST(RowParallelGiven, StartsWithTheSerialLayersValues) {
  split::expect_serial_values(
      [](const Rank& rank, Communicator&) {
        return std::make_unique<Linear>(rank, "layer", 12, 5);
      },
      [](const Rank& rank, Communicator& tp) {
        return std::make_unique<RowParallelLinear>(rank, tp, "layer", 12, 5);
      },
      {1, 2, 3, 4});
}

TEST(RowParallelGiven, SaysWhichLayerDoesNotDivide) {
  split::on_groups(
      4,
      [](const Rank& rank, Communicator& tp) {
        EXPECT_EQ(message_of([&] { RowParallelLinear(rank, tp, "blocks.0.mlp.project", 10, 3); }),
                  "blocks.0.mlp.project: 10 inputs over 4 ranks of tp: expected a multiple of 4");
      },
      1);
}

TEST(RowParallelGiven, RefusesAGeluBehindIt) {
  split::on_groups(
      1,
      [](const Rank& rank, Communicator& tp) {
        EXPECT_EQ(
            message_of([&] { RowParallelLinear(rank, tp, "mlp.fc", 4, 4, 0.02, Gelu::Behind); }),
            "mlp.fc: a GELU in the product of a row-parallel layer would be of a rank's "
            "share and not of the sum: expected a layer of its own behind it");
      },
      1);
}

}  // namespace
}  // namespace aisc
