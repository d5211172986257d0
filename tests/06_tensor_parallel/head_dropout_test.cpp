// Masks of dropout: inside the heads those of the whole tensor, in the residual stream the same on
// all ranks.
#include "06_tensor_parallel/head_dropout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/nn/dropout.h"
#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

using split::Columns;
using split::LayerCase;

constexpr double kRate = 0.4;
constexpr std::uint64_t kSeed = 5;

LayerCase heads(const Shape& shape, const Pass& pass) {
  return {.make =
              [](const Rank& rank, Communicator& tp) {
                return std::make_unique<HeadDropout>(rank, tp, "dropout", kRate, kSeed);
              },
          .input = shape,
          .output = shape,
          .input_is = Columns::Split,
          .output_is = Columns::Split,
          .pass = pass};
}

LayerCase whole(LayerCase c) {
  c.make = [](const Rank& rank, Communicator&) {
    return std::make_unique<Dropout>(rank, "dropout", kRate, kSeed);
  };
  return c;
}

// What dropout makes of two samples of three tokens of four ones, where the first of each token
// draws by its index(sample, token).
using DrawAt = std::function<std::uint64_t(std::uint64_t sample, std::uint64_t token)>;
std::vector<double> kept(const Rank& rank, const DrawAt& index) {
  const Tensor x({2, 3, 4}, DType::F64, rank.device);
  ops::fill(x, 1);
  for (std::uint64_t b = 0; b < 2; ++b)
    for (std::uint64_t t = 0; t < 3; ++t) {
      const View token = x.view().flat(static_cast<std::int64_t>(b * 3 + t) * 4, 4);
      ops::dropout(token, token, kRate, Philox(kSeed, "dropout", 0), index(b, t));
    }
  return to_doubles(x);
}

// 8 columns, 4 on each of two ranks. The samples are 3 and 4 of the batch, the tokens 2, 3 and 4 of
// the sequence: of sample 3, token 2, rank 0 begins at 3 * 2^32 + 16 and rank 1 at 3 * 2^32 + 20.
TEST(HeadDropout, TwoRanksByHand) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    HeadDropout dropout(rank, tp, "dropout", kRate, kSeed);
    Tensor ones({2, 3, 4}, DType::F64, rank.device);
    ops::fill(ones, 1);
    Saved saved;
    const Tensor y =
        dropout.forward(std::move(ones), saved, {.first_sample = 3, .tokens = {.first = 2}});
    const auto r = static_cast<std::uint64_t>(tp.rank());
    const auto with = [&](const DrawAt& index) { return kept(rank, index); };
    EXPECT_TRUE(numbers_are(
        fmt::format("2 ranks, rank {}: ones of samples 3 and 4, tokens 2 to 4", r), y,
        with([=](auto b, auto t) { return ((3 + b) << 32) + (2 + t) * 8 + 4 * r; }),
        {{"an index counted the rank's own 4 columns, so that all ranks drop the same",
          with([=](auto b, auto t) { return ((3 + b) << 32) + (2 + t) * 4; })},
         {"a token were 4 columns wide, as it is on a rank, and not 8",
          with([=](auto b, auto t) { return ((3 + b) << 32) + (2 + t) * 4 + 4 * r; })},
         {"rank r's columns began at r and not at r times 4",
          with([=](auto b, auto t) { return ((3 + b) << 32) + (2 + t) * 8 + r; })},
         {"x began with the sequence's first token: pass.tokens says where its tokens are",
          with([=](auto b, auto t) { return ((3 + b) << 32) + t * 8 + 4 * r; })},
         {"x began with the batch's first sample: pass.first_sample says which it is",
          with([=](auto b, auto t) { return (b << 32) + (2 + t) * 8 + 4 * r; })},
         {"all samples had the same mask: a sample is 2^32 indices",
          with([=](auto, auto t) { return (2 + t) * 8 + 4 * r; })}}));
  });
}

// Anywhere in the batch and in the sequence, which may be in two runs.
TEST(HeadDropout, MasksSideBySideAreTheMaskOfTheWhole) {
  const Pass anywhere{
      .step = 4, .first_sample = 3, .tokens = {.first = 2, .split = 3, .second = 9}};
  for (const Pass& pass : {Pass{}, anywhere}) {
    const LayerCase c = heads({2, 5, 12}, pass);
    const RunRecord one = split::run_layer(whole(c), 1, 1);
    for (const int t : {1, 2, 3, 4, 6})
      EXPECT_EQ(split::run_layer(c, t).gradients, one.gradients)
          << t << " ranks: outputs and dx of two steps, to the bit";
  }
}

TEST(HeadDropoutGiven, IsTheIdentityWithoutRateAndOutsideTrainingAndLeavesAloneWhatOthersHold) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    Saved saved;
    const Tensor x = random_tensor({2, 3, 4}, DType::F32, rank.device, "x"), before = x.clone();
    EXPECT_TRUE(same_bits(HeadDropout(rank, tp, "d", 0, kSeed).forward(x.share(), saved, {}), x));
    HeadDropout half(rank, tp, "d", 0.5, kSeed);
    EXPECT_TRUE(same_bits(half.forward(x.share(), saved, {.training = false}), x));
    EXPECT_FALSE(same_bits(half.forward(x.share(), saved, {}), x));
    EXPECT_TRUE(same_bits(x, before)) << "others hold it";
    EXPECT_EQ(saved.size(), 0u);
  });
}

}  // namespace
}  // namespace aisc
