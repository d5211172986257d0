// The LSTM: a cell by hand, the formulas by loops, PyTorch's order of the gates, gradients through
// time and through both states, and what it refuses.
#include "12_encoders/more/lstm.h"

#include <cmath>
#include <memory>
#include <vector>

#include "12_encoders/more/lstm_pair.h"
#include "common/model/emulated_device.h"
#include "tests/nn/layer_check.h"
#include "tests/support/error_says.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

struct TestLstm {
  TestLstm(TestWorld& world, std::int64_t C, std::int64_t H)
      : layer(world.rank, "lstm", C, H),
        store(world.device, {{"lstm", layer.parameters()}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    for (const Parameter* p : store.parameters())
      world.device.copy(p->value(),
                        random_tensor(p->shape, DType::F64, world.device, p->name, 0.5));
  }

  Lstm layer;
  ParameterStore store;
};

double squashed(double z) { return 1 / (1 + std::exp(-z)); }

// One column, no input, and biases that open or shut the gates for good: a sum of 50 is 1 and one
// of -50 is 0 to within 1e-21. So each gate can be seen alone.
TEST(Lstm, EachGateDoesItsPart) {
  TestWorld world;
  TestLstm lstm(world, 1, 1);
  const auto run = [&](std::vector<double> bias, LstmState* last) {
    for (const Parameter* p : lstm.store.parameters()) ops::fill(p->value(), 0);
    write_doubles(lstm.store.parameters()[2]->value(), bias);
    LstmState first{.hidden = from_doubles({0.25}, {1, 1}, DType::F64, world.device),
                    .cell = from_doubles({0.5}, {1, 1}, DType::F64, world.device)};
    Saved saved;
    return lstm.layer.forward_from(first, Tensor::zeros({1, 1, 1}, DType::F64, world.device), last,
                                   saved);
  };
  const double kOpen = 50, kShut = -50;
  LstmState last;
  Tensor y = run({kShut, kOpen, 9, kOpen}, &last);
  EXPECT_TRUE(numbers_are("input shut, forget open: the cell", last.cell, {0.5},
                          {{"the second gate is not the forget gate (i f g o)", {0}}}));
  EXPECT_TRUE(numbers_are("output open: h", y, {std::tanh(0.5)},
                          {{"h is the cell itself, without tanh", {0.5}}}));
  y = run({kOpen, kShut, 1, kOpen}, &last);
  EXPECT_TRUE(numbers_are("input open, forget shut: the cell", last.cell, {std::tanh(1)},
                          {{"the candidate is a logistic function and no tanh", {squashed(1)}},
                           {"the old cell is still there", {std::tanh(1) + 0.5}}}));
  y = run({kOpen, kOpen, 1, kShut}, &last);
  EXPECT_TRUE(numbers_are("output shut: h", y, {0}));
  EXPECT_TRUE(numbers_are("both open: the cell", last.cell, {std::tanh(1) + 0.5}));
}

// The formulas of the header, one number at a time.
std::vector<double> lstm_by_loops(const TestLstm& lstm, const Tensor& x, const LstmState& first,
                                  std::vector<double>& h, std::vector<double>& c) {
  const std::int64_t B = x.shape()[0], T = x.shape()[1], C = x.shape()[2];
  const std::vector<Parameter*> p = lstm.store.parameters();
  const std::vector<double> in = to_doubles(x), wx = to_doubles(p[0]->value()),
                            wh = to_doubles(p[1]->value()), bias = to_doubles(p[2]->value());
  const std::int64_t H = p[1]->shape[1];
  h = first.hidden ? to_doubles(first.hidden) : std::vector<double>(std::size_t(B * H));
  c = first.cell ? to_doubles(first.cell) : std::vector<double>(std::size_t(B * H));
  std::vector<double> y(std::size_t(B * T * H));
  for (std::int64_t t = 0; t < T; ++t) {
    const std::vector<double> before = h;
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t j = 0; j < H; ++j) {
        double sums[4];
        for (int gate = 0; gate < 4; ++gate) {
          const std::int64_t row = gate * H + j;
          sums[gate] = bias[std::size_t(row)];
          for (std::int64_t k = 0; k < C; ++k)
            sums[gate] += in[std::size_t((b * T + t) * C + k)] * wx[std::size_t(row * C + k)];
          for (std::int64_t k = 0; k < H; ++k)
            sums[gate] += before[std::size_t(b * H + k)] * wh[std::size_t(row * H + k)];
        }
        double& cell = c[std::size_t(b * H + j)];
        cell = squashed(sums[1]) * cell + squashed(sums[0]) * std::tanh(sums[2]);
        h[std::size_t(b * H + j)] = y[std::size_t((b * T + t) * H + j)] =
            squashed(sums[3]) * std::tanh(cell);
      }
  }
  return y;
}

TEST(Lstm, IsTheFormulasOneNumberAtATime) {
  TestWorld world;
  const std::int64_t sizes[][4] = {{1, 1, 1, 1}, {2, 5, 3, 4}, {3, 1, 7, 2}, {1, 9, 2, 5}};
  for (const auto& [B, T, C, H] : sizes)
    for (const bool begun : {false, true}) {
      TestLstm lstm(world, C, H);
      const Tensor x = random_tensor({B, T, C}, DType::F64, world.device, "x");
      LstmState first, last;
      if (begun)
        first = {.hidden = random_tensor({B, H}, DType::F64, world.device, "h"),
                 .cell = random_tensor({B, H}, DType::F64, world.device, "c")};
      std::vector<double> h, c;
      const std::vector<double> expected = lstm_by_loops(lstm, x, first, h, c);
      Saved nothing = Saved::nothing();
      const Tensor y = lstm.layer.forward_from(first, x.share(), &last, nothing);
      EXPECT_TRUE(all_close(y, expected, kF64Tolerance)) << T << " elements";
      EXPECT_TRUE(all_close(last.hidden, h, kF64Tolerance)) << T << " elements";
      EXPECT_TRUE(all_close(last.cell, c, kF64Tolerance)) << T << " elements";
      // In two halves, the second of which goes on from where the first one was.
      if (T < 2 || B > 1) continue;
      LstmState middle, end;
      Tensor front({1, 1, C}, DType::F64, world.device),
          back({1, T - 1, C}, DType::F64, world.device);
      world.device.copy(front.view().flat(0, C), x.view().flat(0, C));
      world.device.copy(back.view().flat(0, (T - 1) * C), x.view().flat(C, (T - 1) * C));
      lstm.layer.forward_from(first, std::move(front), &middle, nothing);
      lstm.layer.forward_from(middle, std::move(back), &end, nothing);
      EXPECT_TRUE(all_close(end.hidden, h, kF64Tolerance)) << "in two parts";
      EXPECT_TRUE(all_close(end.cell, c, kF64Tolerance)) << "in two parts";
    }
}

TEST(Lstm, HasTheGradientsOfItsLossThroughTime) {
  TestWorld world;
  Lstm lstm(world.rank, "lstm", 3, 4);
  check_layer_gradients(world, lstm, {2, 5, 3}, {});
  Lstm one(world.rank, "one", 1, 2);
  check_layer_gradients(world, one, {3, 1, 1}, {});
}

// The loss looks at y and at the last state, and the first state is an input as x is.
TEST(Lstm, HasTheGradientsThroughBothStates) {
  TestWorld world;
  const std::int64_t B = 2, T = 4, C = 3, H = 5;
  TestLstm lstm(world, C, H);
  const auto drawn_tensor = [&](const Shape& shape, const char* name) {
    return random_tensor(shape, DType::F64, world.device, name);
  };
  const Tensor x = drawn_tensor({B, T, C}, "x"), dy = drawn_tensor({B, T, H}, "dy");
  const LstmState first{.hidden = drawn_tensor({B, H}, "h"), .cell = drawn_tensor({B, H}, "c")};
  const LstmState dlast{.hidden = drawn_tensor({B, H}, "dh"), .cell = drawn_tensor({B, H}, "dc")};
  for (const bool asks_for_y : {true, false}) {
    const auto loss = [&] {
      Saved nothing = Saved::nothing();
      LstmState last;
      const Tensor y = lstm.layer.forward_from(first, x.share(), &last, nothing);
      return (asks_for_y ? dot(y, dy) : 0) + dot(last.hidden, dlast.hidden) +
             dot(last.cell, dlast.cell);
    };
    Saved saved;
    LstmState last, dfirst;
    lstm.layer.forward_from(first, x.share(), &last, saved);
    lstm.store.clear_grads();
    const Tensor dx =
        lstm.layer.backward_from(asks_for_y ? dy.share() : Tensor(), dlast, dfirst, saved);
    EXPECT_EQ(saved.size(), 0u) << "backward pops what forward pushed";
    EXPECT_TRUE(check_gradient(loss, x, dx)) << "dx";
    EXPECT_TRUE(check_gradient(loss, first.hidden, dfirst.hidden)) << "the first h";
    EXPECT_TRUE(check_gradient(loss, first.cell, dfirst.cell)) << "the first cell";
    for (const Parameter* p : lstm.store.parameters())
      EXPECT_TRUE(check_gradient(loss, p->value(), p->grad())) << p->name;
  }
}

TEST(LstmPair, HasTheGradientsThroughTheStateThatIsHandedOver) {
  TestWorld world;
  LstmPair pair(world.rank, "pair", 3);
  check_layer_gradients(world, pair, {2, 6, 3}, {});
}

// F32 on a machine without numbers: 4 H columns of x and of h, T times, in products; T of h's.
TEST(Lstm, ChargesAProductForEachStep) {
  const Machine machine = find_machine("limitless");
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    const std::int64_t B = 3, T = 7, C = 5, H = 4;
    Lstm lstm(rank, "lstm", C, H);
    const ParameterStore store(rank.device, {{"lstm", lstm.parameters()}}, {});
    double flops = 0;
    int products = 0, cells = 0;
    const auto listen = [&] {
      flops = 0, products = cells = 0;
      rank.device.listen([&](const OpCost& cost) {
        flops += cost.product ? cost.flops : 0;
        products += cost.product ? 1 : 0;
        cells += std::string(cost.operation).starts_with("lstm_cell") ? 1 : 0;
      });
    };
    Saved saved;
    listen();
    Tensor y = lstm.forward(Tensor({B, T, C}, DType::F32, rank.device), saved, {});
    EXPECT_EQ(flops, static_cast<double>(2 * B * T * 4 * H * (C + H)));
    EXPECT_EQ(products, T + 1) << "one of x for all steps, and one of h for each";
    EXPECT_EQ(cells, T);
    listen();
    lstm.backward(std::move(y), saved, {});
    EXPECT_EQ(flops, static_cast<double>(2 * 2 * B * T * 4 * H * (C + H)));
    EXPECT_EQ(products, T + 3) << "one of h for each step, and those of x and both weights for all";
    EXPECT_EQ(cells, T);
    rank.device.listen(nullptr);
  });
}

TEST(Lstm, SaysWhatItCannotRead) {
  TestWorld world;
  TestLstm lstm(world, 2, 3);
  const auto forward = [&](const Shape& shape, DType dtype, Tensor hidden) {
    return [&, shape, dtype, h = std::make_shared<Tensor>(std::move(hidden))] {
      Saved saved;
      const LstmState first{.hidden = *h ? h->share() : Tensor(), .cell = {}};
      lstm.layer.forward_from(first, Tensor::zeros(shape, dtype, world.device), nullptr, saved);
    };
  };
  EXPECT_TRUE(
      error_says(forward({1, 0, 2}, DType::F64, {}), {"lstm", "(1, 0, 2)", "T of 1 or more"}));
  EXPECT_TRUE(error_says(forward({1, 2, 3}, DType::F64, {}), {"(1, 2, 3)", "(B, T, 2)"}));
  EXPECT_TRUE(error_says(forward({1, 2, 2}, DType::BF16, {}), {"BF16", "expected F32 or F64"}));
  EXPECT_TRUE(
      error_says(forward({1, 2, 2}, DType::F64, Tensor::zeros({2, 3}, DType::F64, world.device)),
                 {"a state of shape (2, 3)", "expected (1, 3)"}));
  LstmPair pair(world.rank, "pair", 2);
  EXPECT_TRUE(error_says(
      [&] {
        Saved saved;
        pair.forward(Tensor::zeros({1, 3, 2}, DType::F64, world.device), saved, {});
      },
      {"pair: 3 vectors", "even"}));
}

}  // namespace
}  // namespace aisc
