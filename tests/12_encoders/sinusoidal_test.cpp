// Positions as sines: the paper's numbers, the rotation between two of them, what the layer does,
// and what an encoder is without them.
#include "12_encoders/sinusoidal.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/nn/attention.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

ConstView host_row(const std::vector<double>& x, CpuDevice& host) {
  return {x.data(), {std::ssize(x)}, DType::F64, host};
}

TEST(SinusoidalEncodings, AreThePapersNumbers) {
  CpuDevice host;
  const std::vector<double> found = sinusoidal_encodings(3, 4);
  const auto row = [](double first, double second) {
    return std::vector{std::sin(first), std::cos(first), std::sin(second), std::cos(second)};
  };
  std::vector<double> expected, same_hands, twice, apart, in_halves;
  for (const double pos : {0., 1., 2.}) {
    for (const double x : row(pos, pos / 100)) expected.push_back(x);
    for (const double x : row(pos, pos)) same_hands.push_back(x);
    for (const double x : row(pos, pos / 10000)) twice.push_back(x);
    for (const double x :
         {std::sin(pos), std::cos(pos / 10), std::sin(pos / 100), std::cos(pos / 1000)})
      apart.push_back(x);
    for (const double x : {std::sin(pos), std::sin(pos / 100), std::cos(pos), std::cos(pos / 100)})
      in_halves.push_back(x);
  }
  EXPECT_TRUE(numbers_are(
      "4 columns of position 0, then of 1, then of 2: PE", host_row(found, host), expected,
      {{"2i / width was divided as integers, and is 0", same_hands},
       {"column 2i was taken for i: 10000^(2 (2i) / width)", twice},
       {"each column has an angle of its own, also the two of a pair", apart},
       {"sines stand in the first half and cosines in the second", in_halves}}));
  EXPECT_NEAR(found[4], 0.8414709848, 1e-10) << "PE(1, 0) is the sine of 1";
  EXPECT_NEAR(found[6], 0.0099998333, 1e-10) << "PE(1, 2) is the sine of 1 / 100";
}

TEST(SinusoidalEncodings, TurnByTheSameAngleWhereverTheyBegin) {
  constexpr std::int64_t kPositions = 600;
  const std::int64_t any = drawn("a position", 2, 299), pairs = drawn("pairs of columns", 4, 90);
  for (const std::int64_t width :
       {std::int64_t{2}, std::int64_t{6}, std::int64_t{130}, 2 * pairs}) {
    const std::vector<double> all = sinusoidal_encodings(kPositions, width);
    ASSERT_EQ(std::ssize(all), kPositions * width);
    const auto row = [&](std::int64_t pos) {
      return std::span(all).subspan(std::size_t(pos * width), std::size_t(width));
    };
    for (const std::int64_t pos : {std::int64_t{0}, std::int64_t{1}, any, std::int64_t{300}})
      for (const std::int64_t distance : {0, 1, 2, 100, 299, -1, -2, -300}) {
        if (pos + distance < 0) continue;
        const std::vector<double> found = encoding_at_distance(row(pos), distance);
        for (std::int64_t c = 0; c < width; ++c)
          ASSERT_NEAR(found[std::size_t(c)], row(pos + distance)[std::size_t(c)], 1e-12)
              << "PE(" << pos << " + " << distance << ") of PE(" << pos << "), column " << c
              << " of " << width << ": each pair of columns turns by its own angle";
      }
  }
}

TEST(SinusoidalEncodings, RefuseWhatHasNoPairs) {
  EXPECT_TRUE(error_says([] { sinusoidal_encodings(3, 5); }, {"positions", "width of 5", "pairs"}));
  EXPECT_TRUE(error_says([] { sinusoidal_encodings(3, 0); }, {"width of 0"}));
  EXPECT_TRUE(error_says([] { sinusoidal_encodings(-1, 4); }, {"-1", "0 or more"}));
  EXPECT_TRUE(error_says([] { encoding_at_distance(std::vector{1.0}, 1); }, {"width of 1"}));
  EXPECT_TRUE(sinusoidal_encodings(0, 4).empty());
}

TEST(Sinusoidal, AddsTheEncodingsOfTheTokensPlaces) {
  TestWorld world;
  const std::int64_t B = 2, T = 5, C = 6;
  Sinusoidal layer(world.rank, "positions", 20, C, DType::F64);
  const std::vector<double> encodings = sinusoidal_encodings(20, C);
  const Tensor x = random_tensor({B, T, C}, DType::F64, world.device, "x"), before = x.clone();
  // Whole sequences, and a rank's part of them: tokens 3, 4, 5, then 14, 15.
  for (const ops::TokenRuns& runs : {ops::TokenRuns{}, ops::TokenRuns{3, 3, 14}}) {
    Saved saved;
    const Tensor y = layer.forward(x.share(), saved, {.tokens = runs});
    std::vector<double> expected = to_doubles(x);
    for (std::int64_t i = 0; i < B * T * C; ++i)
      expected[std::size_t(i)] = std::sqrt(6.0) * expected[std::size_t(i)] +
                                 encodings[std::size_t(runs.position(i / C % T) * C + i % C)];
    EXPECT_TRUE(all_close(y, expected, {1e-14}));
    EXPECT_EQ(saved.size(), 0u) << "nothing is to be remembered";
    EXPECT_TRUE(same_bits(x, before)) << "an x that others hold was changed";
  }
  Saved saved;
  const Tensor dx = layer.backward(x.share(), saved, {});
  std::vector<double> expected = to_doubles(x);
  for (double& d : expected) d *= std::sqrt(6.0);
  EXPECT_TRUE(all_close(dx, expected, {1e-14}));
  EXPECT_TRUE(layer.parameters().empty());
  const void* own = nullptr;
  Tensor alone = x.clone();
  own = alone.view().raw();
  EXPECT_EQ(layer.forward(std::move(alone), saved, {}).view().raw(), own) << "in place";
}

TEST(Sinusoidal, ComputesInTheTypeOfTheModel) {
  TestWorld world;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const Sinusoidal layer(world.rank, "positions", 4, 2, dtype);
    Saved saved;
    const Tensor y = layer.forward(Tensor::zeros({1, 4, 2}, dtype, world.device), saved, {});
    EXPECT_TRUE(all_close(y, sinusoidal_encodings(4, 2), tolerance_of(dtype)));
  }
}

TEST(Sinusoidal, SaysWhichTokenIsBehindItsPositions) {
  TestWorld world;
  const Sinusoidal layer(world.rank, "positions", 4, 2, DType::F32);
  const auto at = [&](std::int64_t tokens, const ops::TokenRuns& runs) {
    return [&, tokens, runs] {
      Saved saved;
      layer.forward(Tensor::zeros({1, tokens, 2}, DType::F32, world.device), saved,
                    {.tokens = runs});
    };
  };
  EXPECT_TRUE(error_says(at(5, {}), {"positions", "a token at 4 of 4"}));
  EXPECT_TRUE(error_says(at(2, {.first = 3}), {"a token at 4 of 4"}));
  EXPECT_TRUE(error_says(at(3, {4, 1, 0}), {"a token at 4 of 4"}));
}

// Attention of all tokens to all of a text, and of the same text with tokens 1 and 3 exchanged.
class ShuffledText : public ::testing::Test {
 protected:
  static constexpr std::int64_t T = 6, C = 4;

  Tensor attended(const Tensor& x) {
    Tensor qkv({1, T, 3 * C}, DType::F64, world.device);
    ops::matmul(as_rows(qkv), as_rows(x), weight, {.transpose = ops::Transpose::Second});
    const auto core = attention_core(world.rank, "core", 2, Sees::All);
    Saved nothing = Saved::nothing();
    return core->forward(std::move(qkv), nothing, {});
  }
  Tensor placed(const Tensor& x) {
    const Sinusoidal layer(world.rank, "positions", T, C, DType::F64);
    Saved nothing = Saved::nothing();
    return layer.forward(x.share(), nothing, {});
  }
  static std::vector<double> exchanged(const Tensor& x) {
    std::vector<double> all = to_doubles(x);
    std::swap_ranges(all.begin() + C, all.begin() + 2 * C, all.begin() + 3 * C);
    return all;
  }
  Tensor shuffled() { return from_doubles(exchanged(text), {1, T, C}, DType::F64, world.device); }

  TestWorld world;
  const Tensor weight = random_tensor({3 * C, C}, DType::F64, world.device, "weight");
  const Tensor text = random_tensor({1, T, C}, DType::F64, world.device, "text");
};

TEST_F(ShuffledText, GivesTheSameVectorsShuffledWithoutPositions) {
  EXPECT_TRUE(all_close(attended(shuffled()), exchanged(attended(text)), {1e-12}));
}

TEST_F(ShuffledText, GivesOtherVectorsWithPositions) {
  const std::vector<double> of_text = exchanged(attended(placed(text)));
  const std::vector<double> of_shuffled = to_doubles(attended(placed(shuffled())));
  double largest = 0;
  for (std::size_t i = 0; i < of_text.size(); ++i)
    largest = std::max(largest, std::abs(of_text[i] - of_shuffled[i]));
  EXPECT_GT(largest, 0.1) << "a token's place makes no difference to what attention returns";
}

}  // namespace
}  // namespace aisc
