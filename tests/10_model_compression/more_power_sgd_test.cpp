// Gradients as two thin factors: by hand, what is lost and comes again, and N ranks that take one
// rank's steps.
#include "10_model_compression/more/power_sgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/error_says.h"
#include "tests/support/numbers.h"
#include "tests/support/serial_run.h"
#include "tests/support/some_gpu.h"

namespace aisc {
namespace {

using Numbers = std::vector<double>;

TEST(Orthogonalize, TwoColumnsByHand) {
  CpuDevice device;
  const Tensor p = from_doubles({3, -1, 4, 7}, {2, 2}, DType::F64, device);
  orthogonalize(p);
  const double length = std::sqrt(50);
  EXPECT_TRUE(
      numbers_are("columns (3, 4), (-1, 7), made orthonormal: number", p, {.6, -.8, .8, .6},
                  {{"columns were made of length 1 alone", {.6, -1 / length, .8, 7 / length}},
                   {"nothing were divided by its length", {3, -4, 4, 3}}}));
}

TEST(Orthogonalize, WhatIsMadeUpOfOtherColumnsBecomesZero) {
  CpuDevice device;
  for (const DType dtype : {DType::F32, DType::F64}) {
    const Tensor p = from_doubles({3, .6, 0, 4, .8, 0}, {2, 3}, dtype, device);
    orthogonalize(p);
    const Numbers found = to_doubles(p), expected = {.6, 0, 0, .8, 0, 0};
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(found[i], expected[i], i % 3 == 0 ? 1e-6 : 0)
          << "columns (3, 4), (.6, .8), (0, 0): number " << i;
  }
}

TEST(Orthogonalize, ColumnsOfAnyLengthAreOrthonormal) {
  CpuDevice device;
  for (const double scale : {1e-12, 1.0, 1e9}) {
    const std::int64_t n = 37, r = 5;
    const Tensor p = random_tensor({n, r}, DType::F32, device, "p", scale);
    orthogonalize(p);
    const Tensor dots({r, r}, DType::F32, device);
    ops::matmul(dots, p, p, {.transpose = ops::Transpose::First});
    for (std::int64_t i = 0; i < r * r; ++i)
      EXPECT_NEAR(to_doubles(dots)[index(i)], i % (r + 1) == 0 ? 1 : 0, 1e-6) << scale;
  }
}

// A rank with a weight and a bias, whose gradients a test writes.
struct Compressing {
  Compressing(const Rank& own, const Shape& shape, std::int64_t r, DType dtype = DType::F64)
      : weight(whole_parameter("w", shape, Init::constant(0), true)),
        bias(whole_parameter("b", {3}, Init::constant(0), false)),
        store(own.device, {{"layer", {&weight, &bias}}},
              {.value_dtype = dtype, .grad_dtype = dtype}),
        keeper(std::make_unique<Sgd>(slices_of(store.parameters()), Sgd::Options{}), r, 7),
        reducer(own, store) {
    reducer.use(keeper);
  }
  void sum(const Numbers& of_weight, const Numbers& of_bias = {0, 0, 0}) {
    store.clear_grads();
    write_doubles(weight.grad(), of_weight);
    write_doubles(bias.grad(), of_bias);
    weight.has_grad = bias.has_grad = true;
    reducer.finish();
  }
  Numbers error() const { return to_doubles(keeper.find(weight)->error); }

  Parameter weight, bias;
  ParameterStore store;
  LowRankKeeper keeper;
  PowerSgd reducer;
};

// The sum over the ranks of what each has.
Numbers sum_of_ranks(const Rank& rank, Numbers mine) {
  CpuDevice host;
  const View all(mine.data(), {static_cast<std::int64_t>(mine.size())}, DType::F64, host);
  rank.world.all_reduce(all).wait();
  return mine;
}

// M = (2 1 0; 1 2 0; 0 0 1), q = (1, 0, 0): M q = (2, 1, 0), p that over root 5, and M^T p = (5, 4,
// 0) over root 5.
const Numbers kMatrix = {2, 1, 0, 1, 2, 0, 0, 0, 1}, kSent = {2, 1.6, 0, 1, .8, 0, 0, 0, 0},
              kLeft = {0, -.6, 0, 0, 1.2, 0, 0, 0, 1};

TEST(PowerSgd, OneMatrixByHand) {
  TestWorld world;
  Compressing one(world.rank, {3, 3}, 1);
  write_doubles(one.keeper.find(one.weight)->q, {1, 0, 0});
  one.sum(kMatrix, {5, 6, 7});
  const std::string where = "(2 1 0; 1 2 0; 0 0 1) by q = (1 0 0): ";
  EXPECT_TRUE(numbers_are(where + "sent", one.weight.grad(), kSent,
                          {{"p were not of length 1", {10, 8, 0, 5, 4, 0, 0, 0, 0}},
                           {"everything were sent", kMatrix}}));
  EXPECT_TRUE(numbers_are(where + "error", one.keeper.find(one.weight)->error, kLeft,
                          {{"what was sent were kept, too", kMatrix},
                           {"nothing were kept of what was lost", Numbers(9)}}));
  EXPECT_TRUE(numbers_are("the bias, sent as it is", one.bias.grad(), {5, 6, 7}));
  const double root = std::sqrt(5);
  EXPECT_TRUE(numbers_are("the next step begins with q", one.keeper.find(one.weight)->q,
                          {5 / root, 4 / root, 0}));
}

// The same M in two parts: the same is sent, errors add up to the same, and none has a share of p.
TEST(PowerSgd, TwoRanksByHand) {
  launch(late(2), [](const Rank& rank) {
    const bool is_first = rank.world.rank() == 0;
    Compressing one(rank, {3, 3}, 1);
    write_doubles(one.keeper.find(one.weight)->q, {1, 0, 0});
    one.sum(is_first ? Numbers{2, 0, 0, 0, 2, 0, 0, 0, 0} : Numbers{0, 1, 0, 1, 0, 0, 0, 0, 1},
            {1, 2, 3});
    EXPECT_TRUE(
        numbers_are("two ranks: sent", one.weight.grad(), kSent,
                    {{"a rank's own q were taken for the sum", {1.6, .8, 0, .8, .4, 0, 0, 0, 0}}}));
    EXPECT_TRUE(numbers_are("two ranks: biases", one.bias.grad(), {2, 4, 6}));
    const Numbers error = one.error(), all = sum_of_ranks(rank, error);
    for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(all[i], kLeft[i], 1e-12) << "error " << i;
    for (std::size_t c = 0; c < 3; ++c)
      EXPECT_NEAR(2 * error[c] + error[3 + c], 0, 1e-12)
          << "rank " << rank.world.rank() << ", column " << c << ": (2, 1, 0) was sent, and is in "
          << "its error: it is the rank's own A^T p that goes out, not an N-th of the sum";
  });
}

Numbers drawn_gradient(int rank, int step, std::int64_t n) {
  CpuDevice device;
  const std::string name = "gradient " + std::to_string(rank) + " " + std::to_string(step);
  return to_doubles(random_tensor({n}, DType::F64, device, name));
}

// However often: what was sent and what all ranks have left add up to what was given.
TEST(PowerSgd, LosesNothing) {
  for (const std::int64_t r : {1, 2})
    launch(late(3), [r](const Rank& rank) {
      Compressing one(rank, {9, 5}, r);
      Numbers given(45), sent(45);
      for (int step = 0; step < 5; ++step) {
        one.sum(drawn_gradient(rank.world.rank(), step, 45));
        const Numbers out = to_doubles(one.weight.grad());
        for (int other = 0; other < 3; ++other) {
          const Numbers part = drawn_gradient(other, step, 45);
          for (std::size_t i = 0; i < 45; ++i) given[i] += part[i];
        }
        for (std::size_t i = 0; i < 45; ++i) sent[i] += out[i];
        one.keeper.step({.learning_rate = 0});
      }
      const Numbers left = sum_of_ranks(rank, one.error());
      for (std::size_t i = 0; i < 45; ++i)
        EXPECT_NEAR(sent[i] + left[i], given[i], 1e-12) << "number " << i << ", rank " << r;
    });
}

// A sum of rank 2, though no rank's part is.
TEST(PowerSgd, SendsAMatrixOfItsRankWhole) {
  for (const DType dtype : {DType::F32, DType::F64})
    launch(late(3), [dtype](const Rank& rank) {
      Compressing one(rank, {9, 7}, 2, dtype);
      const Numbers a = drawn_gradient(5, 0, 18), b = drawn_gradient(6, 0, 14);
      Numbers mine = drawn_gradient(7, rank.world.rank(), 63), whole(63);
      for (std::size_t i = 0; i < 63; ++i) {
        whole[i] = a[i / 7] * b[i % 7] + a[9 + i / 7] * b[7 + i % 7];
        if (rank.world.rank() == 2) {
          mine[i] = whole[i];
          for (const int other : {0, 1}) mine[i] -= drawn_gradient(7, other, 63)[i];
        }
      }
      one.sum(mine);
      const double tolerance = dtype == DType::F64 ? 1e-12 : 2e-5;
      for (std::size_t i = 0; i < 63; ++i)
        EXPECT_NEAR(to_doubles(one.weight.grad())[i], whole[i], tolerance) << "number " << i;
    });
}

// Of no gradient nothing comes, and no NaN; and what has no direction yet gets one again.
TEST(PowerSgd, GoesOnAfterAStepOfZeros) {
  TestWorld world;
  Compressing one(world.rank, {4, 4}, 1, DType::F32);
  one.sum(Numbers(16));
  EXPECT_EQ(to_doubles(one.weight.grad()), Numbers(16));
  one.keeper.step({.learning_rate = 0});
  one.sum(Numbers(16, 3.0));
  for (const double x : to_doubles(one.weight.grad())) EXPECT_NEAR(x, 3, 1e-5);
}

// 37 x 20 of rank 3: 171 numbers in place of 740. 4 x 4 would be 24 in place of 16.
TEST(PowerSgd, SendsTheBytesOfTheFactors) {
  const auto bytes = [](const Shape& shape, std::int64_t r) {
    std::int64_t sent = 0;
    launch(late(2), [&](const Rank& rank) {
      Compressing one(rank, shape, r, DType::F32);
      one.sum(Numbers(index(shape.count()), 1.0));
      const CommStats::Row row = rank.world.stats()[CommOp::AllReduce];
      if (rank.world.rank() == 0) sent = row.payload_bytes;
    });
    return sent;
  };
  EXPECT_EQ(bytes({37, 20}, 3), 4 * (3 * (37 + 20) + 3));
  EXPECT_EQ(bytes({37, 20}, 1), 4 * (37 + 20 + 3));
  EXPECT_EQ(bytes({4, 4}, 3), 4 * (16 + 3)) << "a small matrix goes as it is";
  EXPECT_EQ(bytes({4, 4}, 4), 4 * (16 + 3));
  EXPECT_EQ(bytes({2, 6, 10}, 2), 4 * (2 * (12 + 10) + 3)) << "experts' matrices one below another";
  EXPECT_EQ(bytes({50}, 1), 4 * (50 + 3)) << "a vector";
}

// N ranks take one rank's steps: P and Q are sums, and so are the errors.
class PowerSgdRanks : public ::testing::TestWithParam<int> {};

TEST_P(PowerSgdRanks, AreOneRankThatCompresses) {
  for (const std::int64_t r : {1, 3}) {
    const TrainConfig config = odd_training();
    const StepParts parts = power_sgd(r);
    LaunchOptions options = launch_options({.ranks = GetParam()});
    options.internals.decorate = make_late_comm;
    EXPECT_TRUE(same_steps(run_layout({.ranks = 1}, config, 3, parts),
                           run_layout<CheckedTrainer>({.options = options}, config, 3, parts)))
        << "PowerSGD of rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PowerSgdRanks, ::testing::Values(2, 3, 7));

TrainConfig training_of(DType dtype = DType::F32) {
  TrainConfig c = odd_training(1, "none", dtype);
  c.model.dropout = 0;
  c.gradient_dtype = DType::F32;
  c.batch = 8;
  c.steps = 60;
  c.learning_rate = 1e-2;
  c.clip = 1;
  return c;
}

// The mean loss of the last 10 of 60 steps. At first it is 2.57 nats.
double end_of(const StepParts& parts, DType dtype = DType::F32) {
  double end = 0;
  const auto text = some_text();
  launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
    const TrainConfig config = training_of(dtype);
    Trainer trainer(rank, config, parts);
    const BatchSampler data(text, config.model.context, config.seed);
    for (std::int64_t i = 0; i < config.steps; ++i) {
      const double loss = trainer.step(data).loss;
      if (rank.world.rank() == 0 && i >= config.steps - 10) end += loss / 10;
    }
  });
  return end;
}

TEST(PowerSgd, EndsNearTheSum) {
  const double sum = end_of({}), four = end_of(power_sgd(4)),
               short_weights = end_of(power_sgd(4), DType::BF16);
  RecordProperty("sum", std::to_string(sum));
  RecordProperty("rank_4", std::to_string(four));
  EXPECT_NEAR(four, sum, .1);
  EXPECT_NEAR(short_weights, four, .1);
}

// Also with weights in BF16, whose masters are the inner optimizer's.
TEST(PowerSgd, GoesOnFromItsState) {
  for (const DType dtype : {DType::F32, DType::BF16})
    launch(launch_options({.ranks = 2}), [dtype](const Rank& rank) {
      const TrainConfig config = training_of(dtype);
      const auto text = some_text();
      const BatchSampler data(text, config.model.context, config.seed);
      Trainer whole(rank, config, power_sgd(2)), again(rank, config, power_sgd(2));
      for (int i = 0; i < 3; ++i) whole.step(data);
      const Optimizer &from = whole.optimizer(), &to = again.optimizer();
      for (std::size_t i = 0; i < from.slices().size(); ++i)
        rank.device.copy(to.slices()[i].weight, from.slices()[i].weight);
      const auto copy = [&](const auto& mine, const auto& its) {
        ASSERT_EQ(mine.size(), its.size());
        for (std::size_t i = 0; i < mine.size(); ++i) {
          EXPECT_EQ(mine[i].name, its[i].name);
          rank.device.copy(mine[i].value, its[i].value);
        }
      };
      copy(to.state(), from.state());
      copy(to.own_state(), from.own_state());
      EXPECT_EQ(to.own_state().size(), 2u) << "errors and qs";
      again.resume(3, whole.samples_taken());
      for (int i = 0; i < 2; ++i) EXPECT_EQ(again.step(data).loss, whole.step(data).loss);
      EXPECT_TRUE(same_bits(again.parameters().values(), whole.parameters().values()));
    });
}

TEST(PowerSgd, SaysWhatItCannotDo) {
  TestWorld world;
  EXPECT_TRUE(error_says(
      [&] {
        Compressing(world.rank, {3, 3}, 0);
      },
      {"PowerSGD: rank 0, expected 1 or more"}));
  EXPECT_TRUE(error_says(
      [&] {
        Compressing(world.rank, {3, 3}, 1, DType::BF16);
      },
      {"PowerSGD: the gradient of w is BF16, expected F32 or F64"}));
  SomeGpu gpu;
  const Rank on_gpu{world.rank.world, gpu, world.rank.clock, world.rank.trace};
  EXPECT_TRUE(error_says(
      [&] {
        Compressing(on_gpu, {3, 3}, 1, DType::F32);
      },
      {"PowerSGD: gradients on cuda:0, expected on the host"}));
  StepParts divided;
  divided.divided = true;
  EXPECT_TRUE(error_says([&] { power_sgd(1, divided); },
                         {"PowerSGD: ranks divide weights or gradients, expected that each has "
                          "all"}));
  StepParts scaled;
  scaled.scale = [] { return nullptr; };
  EXPECT_TRUE(error_says([&] { power_sgd(1, scaled); },
                         {"PowerSGD: the loss is scaled, expected that it is not"}));
}

}  // namespace
}  // namespace aisc
