// Two LSTMs and attention that say a sequence backwards: what they are asked, that both learn it,
// and how much of the loss's gradient arrives where.
#include "12_encoders/more/recurrent_reversal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/nn/driver.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr Reverser kBothReversers[] = {Reverser::Recurrent, Reverser::Attention};

std::vector<std::int32_t> symbols_of(const Tensor& x) {
  const auto values = x.values<std::int32_t>();
  return {values.begin(), values.end()};
}

TEST(Reversal, AsksForTheSymbolsBackwards) {
  TestWorld world;
  for (const Reverser reverser : kBothReversers) {
    const Reversal run(world.rank, reverser, {.length = 5, .symbols = 3});
    const std::int64_t columns = reverser == Reverser::Recurrent ? 10 : 5;
    const Batch all = run.batch(Reversal::Text::Training, 0, 40);
    ASSERT_EQ(all.tokens.shape(), Shape({40, columns}));
    const std::vector<std::int32_t> tokens = symbols_of(all.tokens),
                                    targets = symbols_of(all.targets);
    bool seen[4] = {};
    for (std::int64_t b = 0; b < 40; ++b)
      for (std::int64_t t = 0; t < 5; ++t) {
        const std::int32_t symbol = tokens[std::size_t(b * columns + t)];
        ASSERT_TRUE(symbol >= 1 && symbol <= 3) << symbol << " is no symbol";
        seen[symbol] = true;
        EXPECT_EQ(targets[std::size_t(b * 5 + 4 - t)], symbol) << "sample " << b << ", input " << t;
        if (columns > 5) {
          const std::int32_t read = tokens[std::size_t(b * columns + 5 + t)];
          EXPECT_EQ(read, t == 0 ? 0 : targets[std::size_t(b * 5 + t - 1)])
              << "before it says symbol " << t << " the writer reads the one before it; sample "
              << b;
        }
      }
    EXPECT_TRUE(seen[1] && seen[2] && seen[3]) << "not all symbols are drawn";
    // Sample 7 is the same whichever samples it is asked for with, and no held-out one.
    const std::vector<std::int32_t> later =
        symbols_of(run.batch(Reversal::Text::Training, 7, 2).targets);
    EXPECT_TRUE(std::equal(later.begin(), later.end(), targets.begin() + 35));
    EXPECT_NE(symbols_of(run.batch(Reversal::Text::HeldOut, 0, 40).targets), targets);
  }
}

TEST(Reversal, AttentionHasFewerWeights) {
  TestWorld world;
  const std::int64_t C = 32, n = 8, V = 9;
  const auto count = [&](Reverser reverser) {
    return Reversal(world.rank, reverser, {.length = n, .width = C}).parameter_count();
  };
  EXPECT_EQ(count(Reverser::Recurrent), V * C + 2 * (8 * C * C + 4 * C) + V * C + V);
  EXPECT_EQ(count(Reverser::Attention), V * C + n * C + 12 * C * C + 9 * C + 3 * 2 * C);
  EXPECT_LT(count(Reverser::Attention), count(Reverser::Recurrent));
}

// Sequences of 3 of 4 symbols: both soon say nearly all of them right.
TEST(Reversal, BothLearnShortSequences) {
  TestWorld world;
  for (const Reverser reverser : kBothReversers) {
    Reversal run(world.rank, reverser, {.length = 3, .symbols = 4, .width = 16});
    const double first = run.step();
    EXPECT_NEAR(first, std::log(5), 0.5) << "nothing is known at first: 5 symbols alike";
    for (int step = 0; step < 400; ++step) run.step();
    EXPECT_GT(run.accuracy(200), 0.9) << (reverser == Reverser::Recurrent ? "LSTMs" : "attention");
  }
}

// The way is the number of steps of a recurrence; the gradient that arrives is the loss's slope.
TEST(Reversal, GradientsAreThoseOfTheLastSymbol) {
  TestWorld world;
  const std::int64_t n = 3, C = 4;
  for (const Reverser reverser : kBothReversers) {
    Reversal run(world.rank, reverser,
                 {.length = n, .symbols = 2, .width = C, .dtype = DType::F64});
    const std::vector<double> norms = run.gradient_norms(1);
    ASSERT_EQ(std::ssize(norms), n);
    // By differences: from the first layer's output on, of the one target that counts.
    const Batch batch = run.batch(Reversal::Text::HeldOut, 0, 1);
    std::fill_n(batch.targets.data<std::int32_t>(), n - 1, -1);
    Saved nothing = Saved::nothing();
    const Tensor x = run.model().layers[0]->forward(batch.tokens.share(), nothing, {});
    const auto loss = [&] {
      Tensor y = x.clone();
      for (std::size_t i = 1; i < run.model().layers.size(); ++i)
        y = run.model().layers[i]->forward(std::move(y), nothing, {});
      return run.model().loss->forward(std::move(y), batch.targets, nothing, {});
    };
    for (std::int64_t t = 0; t < n; ++t) {
      double squares = 0;
      for (std::int64_t c = 0; c < C; ++c) {
        double& element = x.data<double>()[t * C + c];
        const double before = element, step = 1e-5;
        element = before + step;
        const double up = loss();
        element = before - step;
        const double slope = (up - loss()) / (2 * step);
        element = before;
        squares += slope * slope;
      }
      EXPECT_NEAR(norms[std::size_t(t)], std::sqrt(squares), 1e-7 * (1 + std::sqrt(squares)))
          << "input " << t;
      EXPECT_EQ(run.way(t), reverser == Reverser::Recurrent ? 5 - t : 1);
    }
  }
}

// Before the first step the gates let about half of the state through. So what arrives at input t
// is less by a factor with every step between; attention looks everywhere alike.
TEST(Reversal, GradientsFadeWithTheWayOfARecurrence) {
  TestWorld world;
  const std::int64_t n = 16;
  const ReversalOptions options{.length = n, .dtype = DType::F64};
  Reversal recurrent(world.rank, Reverser::Recurrent, options);
  const std::vector<double> fading = recurrent.gradient_norms(16);
  for (std::int64_t t = 1; t < n; ++t)
    EXPECT_LT(fading[std::size_t(t - 1)], 0.95 * fading[std::size_t(t)]) << "input " << t - 1;
  EXPECT_LT(fading.front(), 1e-2 * fading.back());
  Reversal attention(world.rank, Reverser::Attention, options);
  const std::vector<double> even = attention.gradient_norms(16);
  for (std::int64_t t = 0; t + 1 < n; ++t)  // the last place is its own input, too
    EXPECT_NEAR(even[std::size_t(t)] / even[0], 1, 0.3) << "input " << t;
}

}  // namespace
}  // namespace aisc
