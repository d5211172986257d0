// Adafactor: a second moment of rows and columns, of whole parameters, whoever has which part.
#include "04_sharding/adafactor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/ops/ops.h"
#include "tests/04_sharding/adafactor_oracle.h"

namespace aisc {
namespace {

using namespace oracle;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Adafactor, IsTheFormulaInPlainLoops) {
  const std::vector<Parameter> model = drawn_model();
  expect_formula("relative", {.model = model, .options = {.weight_decay = .1}});
  expect_formula("scheduled", {.model = model, .options = {.step = Step::Scheduled}});
  expect_formula(
      "other options",
      {.model = model, .options = {.clip = .8, .decay_power = .5, .eps1 = 1e-3, .eps2 = .4}});
  // 2^-24 of each number, in sums of a hundred and over ten steps.
  expect_formula("in F32", {.model = model, .dtype = DType::F32}, 1e-5);
}

// Large enough for threads and for several blocks.
TEST(Adafactor, IsTheFormulaForLargeMatrices) {
  const std::vector<Parameter> model{parameter("a", {drawn("rows of large", 70, 99), 513}),
                                     parameter("b", {drawn("columns of large", 17000, 19000)})};
  expect_formula("large", {.model = model, .steps = 4});
}

// Of the small model some of 7 ranks have nothing.
TEST(Adafactor, DividedIsTheSameAsWhole) {
  for (const auto& model : {drawn_model(), {parameter("a", {2, 2}), parameter("b", {1})}}) {
    const std::vector<Numbers> whole = weights_of({.model = model});
    for (const int ranks : {1, 2, 3, 4, 7})
      expect_same(std::to_string(count_of(model)) + " elements on " + std::to_string(ranks),
                  weights_of({.model = model, .options = kDivided, .ranks = ranks}), whole);
  }
}

TEST(Adafactor, SlicesMayBeManyOfOneParameter) {
  const std::vector<Parameter> model = drawn_model();
  const std::int64_t longest = drawn("elements of a slice", 3, 9);
  const auto whole = weights_of({.model = model});
  const std::string where = "slices of " + std::to_string(longest);
  expect_same(where, weights_of({.model = model, .longest = longest}), whole);
  expect_same(where + " on 3 ranks",
              weights_of({.model = model, .options = kDivided, .ranks = 3, .longest = longest}),
              whole);
}

// Without slices that are divided every rank does the same, alone.
TEST(Adafactor, AllOnEveryRankSendsNothing) {
  const std::vector<Parameter> model = drawn_model();
  expect_same("2 ranks, all slices on both", weights_of({.model = model, .ranks = 2}),
              weights_of({.model = model}));
  launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
    const Tensor w = random_tensor({count_of(model)}, DType::F64, rank.device, "w");
    Adafactor adafactor(rank, pointers(model), cut(model, w, w, {0, w.count()}), {});
    adafactor.step({.learning_rate = 0});
    for (const CommStats::Row& row : rank.world.stats().rows) EXPECT_EQ(row.calls, 0);
  });
}

// A table of five rows, of which two are padding, is one of three.
TEST(Adafactor, PaddingIsAsIfItWereNotThere) {
  const std::vector<Parameter> model{parameter("table", {3, 4})};
  std::vector<Parameter> padded{parameter("table", {5, 4})};
  padded[0].init = Init::normal(1, 12);
  for (const int ranks : {1, 2, 4, 7})
    launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
      const std::int64_t r = rank.world.rank(), size = rank.world.size();
      const auto zeros = [&](std::int64_t n) {
        return Tensor::zeros({n}, DType::F64, rank.device);
      };
      const Tensor w = zeros(12), g = zeros(12), padded_w = zeros(20), padded_g = zeros(20);
      write_doubles(w, normal(12, "table"));
      rank.device.copy(padded_w.view().flat(0, 12), w);
      Adafactor one(rank, pointers(model), cut(model, w, g, {0, 12}), {.weight_decay = .1});
      const Range own{20 * r / size, 20 * (r + 1) / size};
      Adafactor other(rank, pointers(padded), cut(padded, padded_w, padded_g, own),
                      {.weight_decay = .1, .slices = Slices::Divided});
      for (int step = 0; step < 5; ++step) {
        write_doubles(g, normal(12, "gradient " + std::to_string(step), 1 + step % 2));
        rank.device.copy(padded_g.view().flat(0, 12), g);
        one.step({.learning_rate = 0});
        other.step({.learning_rate = 0});
      }
      Numbers expected = to_doubles(w);
      expected.resize(20);
      const Numbers found = to_doubles(padded_w);
      EXPECT_TRUE(are(
          std::to_string(ranks) + " ranks, rank " + std::to_string(r) + ": its part of the table",
          {found.begin() + own.begin, found.begin() + own.end},
          {expected.begin() + own.begin, expected.begin() + own.end}));
    });
}

// A matrix of 8 x 6 with a gradient of signs, so that U is the gradient's sign times what has grown
// since the last step. Returns how far the weights move in step `step`, as a root mean square.
double moved(const Adafactor::Options& options, double weight, std::int64_t step, double grown,
             double rate = 0) {
  double result = 0;
  launch({.bind = false}, [&](const Rank& rank) {
    const std::vector<Parameter> model{parameter("w", {8, 6})};
    const Tensor w = from_doubles(Numbers(48, weight), {48}, DType::F64, rank.device);
    Numbers signs = normal(48, "signs");
    for (double& x : signs) x = x > 0 ? 1 : -1;
    const Tensor g = from_doubles(signs, {48}, DType::F64, rank.device);
    Adafactor adafactor(rank, pointers(model), cut(model, w, g, {0, 48}), options);
    adafactor.step({.learning_rate = rate});
    adafactor.resume(step - 1);
    ops::fill(w, weight);
    adafactor.step({.learning_rate = rate, .gradient_scale = grown});
    Numbers way = to_doubles(w);
    for (double& x : way) x -= weight;
    result = root_mean_square(way);
  });
  return result;
}

TEST(Adafactor, ClipsUpdates) {
  constexpr double kTen = 10;
  const double beta2 = 1 - std::pow(2, -.8);  // in step 2
  const double free = kTen / std::sqrt(beta2 + (1 - beta2) * kTen * kTen);
  EXPECT_GT(free, 1.3) << "the test is to see a long update";
  EXPECT_NEAR(moved({.clip = kInfinity}, 1, 2, kTen), .01 * free, kSame) << "without clipping";
  EXPECT_NEAR(moved({}, 1, 2, kTen), .01, kSame) << "to a root mean square of 1";
  EXPECT_NEAR(moved({.clip = .5}, 1, 2, kTen), .005, kSame) << "to one of 1/2";
  EXPECT_NEAR(moved({.clip = 1.3}, 1, 2, kTen), .013, kSame) << "to one of 1.3";
  const double small = .1 / std::sqrt(beta2 + (1 - beta2) * .01);
  EXPECT_NEAR(moved({}, 1, 2, .1), .01 * small, kSame) << "a short update stays as it is";
}

TEST(Adafactor, StepsAreRelative) {
  EXPECT_NEAR(moved({}, 2, 2, 1), .02, kSame) << "a hundredth of weights of 2";
  EXPECT_NEAR(moved({}, 0, 2, 1), 1e-5, kSame) << "weights of 0 count as 1/1000";
  EXPECT_NEAR(moved({.eps2 = .1}, 0, 2, 1), 1e-3, kSame) << "or as eps2";
  EXPECT_NEAR(moved({}, 1, 10000, 1), .01, kSame) << "up to step 10,000";
  EXPECT_NEAR(moved({}, 1, 40000, 1), .005, kSame) << "then as 1 / sqrt t";
  EXPECT_NEAR(moved({}, 1, 2, 1, .3), .01, kSame) << "whatever the learning rate is";
  EXPECT_NEAR(moved({.step = Step::Scheduled}, 2, 2, 1, .3), .6, kSame)
      << "the learning rate, times weights of 2";
}

// The master moves as weights in F32 do, bit by bit; the weight is a copy of it.
TEST(Adafactor, MastersMoveAndWeightsFollow) {
  launch({.bind = false}, [](const Rank& rank) {
    const std::vector<Parameter> model{parameter("a", {9, 7}, true), parameter("b", {5})};
    const std::int64_t n = count_of(model);
    for (const DType gradient : {DType::BF16, DType::F32}) {
      const Tensor w16 = random_tensor({n}, DType::BF16, rank.device, "w");
      const Tensor w32({n}, DType::F32, rank.device), g32({n}, DType::F32, rank.device);
      const Tensor g({n}, gradient, rank.device);
      ops::cast(w32, w16);
      Adafactor one(rank, pointers(model), cut(model, w16, g, {0, n}), {.weight_decay = .1});
      Adafactor other(rank, pointers(model), cut(model, w32, g32, {0, n}), {.weight_decay = .1});
      for (int step = 0; step < 20; ++step) {
        write_doubles(g, normal(static_cast<std::size_t>(n), "gradient " + std::to_string(step)));
        ops::cast(g32, g);
        one.step({.learning_rate = 0});
        other.step({.learning_rate = 0});
      }
      Numbers masters;
      for (const Optimizer::State& state : one.state())
        if (state.name.ends_with("/master")) masters = joined(masters, to_doubles(state.value));
      EXPECT_TRUE(are("masters of BF16 weights", masters, to_doubles(w32), {}, 0));
      const Tensor rounded({n}, DType::BF16, rank.device);
      ops::cast(rounded, w32);
      EXPECT_TRUE(same_bits(w16, rounded)) << "a weight is its master, rounded";
    }
  });
}

// One all-reduce of the rows' and columns' sums, one of 2 numbers a parameter.
TEST(Adafactor, SendsTwoSumsAStep) {
  const std::vector<Parameter> model = drawn_model();
  std::int64_t n_and_m = 0;
  for (const std::size_t p : {0, 4, 6}) n_and_m += model[p].shape[0] + model[p].shape[1];
  for (const DType dtype : {DType::F32, DType::F64})
    launch({.ranks = 3, .bind = false}, [&](const Rank& rank) {
      const std::int64_t count = count_of(model), r = rank.world.rank();
      const Tensor w = random_tensor({count}, dtype, rank.device, "w");
      Adafactor adafactor(rank, pointers(model),
                          cut(model, w, w, {count * r / 3, count * (r + 1) / 3}), kDivided);
      const CommStats before = rank.world.stats();
      adafactor.step({.learning_rate = 0});
      const CommStats after = rank.world.stats();
      const auto all_reduce = [](const CommStats& stats) { return stats[CommOp::AllReduce]; };
      EXPECT_EQ(all_reduce(after).calls - all_reduce(before).calls, 2);
      EXPECT_EQ(all_reduce(after).payload_bytes - all_reduce(before).payload_bytes,
                n_and_m * static_cast<std::int64_t>(size_of(dtype)) + 7 * 2 * 8);
      std::int64_t calls = 0;
      for (std::size_t op = 0; op < after.rows.size(); ++op)
        calls += after.rows[op].calls - before.rows[op].calls;
      EXPECT_EQ(calls, 2) << "nothing else is sent";
    });
}

TEST(Adafactor, GoesOnFromItsState) {
  launch({.bind = false}, [](const Rank& rank) {
    const std::vector<Parameter> model{parameter("a", {3, 5}), parameter("b", {4})};
    for (const DType dtype : {DType::F64, DType::BF16}) {
      const Tensor w = random_tensor({19}, dtype, rank.device, "w"), g({19}, dtype, rank.device);
      Adafactor one(rank, pointers(model), cut(model, w, g, {0, 19}), {});
      const auto step = [&](Adafactor& adafactor, int number) {
        write_doubles(g, normal(19, "gradient " + std::to_string(number)));
        adafactor.step({.learning_rate = 0});
      };
      step(one, 0), step(one, 1);
      const Tensor copy = w.clone();
      Adafactor other(rank, pointers(model), cut(model, copy, g, {0, 19}), {});
      const auto from = one.state(), to = other.state();
      for (std::size_t i = 0; i < from.size(); ++i) rank.device.copy(to[i].value, from[i].value);
      other.resume(one.steps());
      step(one, 2), step(other, 2);
      EXPECT_TRUE(same_bits(w, copy)) << name_of(dtype);
    }
  });
}

// The loss is the mean of the squared distances from `goal`.
TEST(Adafactor, Learns) {
  const std::vector<Parameter> model{parameter("w", {6, 4}), parameter("b", {4})};
  const Numbers goal = normal(28, "goal", 2);
  launch({.bind = false}, [&](const Rank& rank) {
    const Tensor w = from_doubles(normal(28, "start", .5), {28}, DType::F32, rank.device);
    const Tensor g({28}, DType::F32, rank.device);
    const auto loss = [&] {  // writes the gradient, too
      Numbers distance = to_doubles(w);
      for (std::size_t i = 0; i < goal.size(); ++i) distance[i] -= goal[i];
      const double mean = std::pow(root_mean_square(distance), 2);
      for (double& d : distance) d *= 2.0 / 28;
      write_doubles(g, distance);
      return mean;
    };
    Adafactor adafactor(rank, pointers(model), cut(model, w, g, {0, 28}),
                        {.step = Step::Scheduled});
    const double untrained = loss();
    constexpr int kSteps = 600;
    for (int step = 0; step < kSteps; ++step) {
      adafactor.step({.learning_rate = .2 * (1 - step / static_cast<double>(kSteps))});
      loss();
    }
    EXPECT_GT(untrained, 1) << "the test is to start from a loss";
    EXPECT_LT(loss(), untrained / 1000) << "of the untrained weights " << untrained;
    EXPECT_LT(loss(), 1e-3);
  });
}

}  // namespace
}  // namespace aisc
