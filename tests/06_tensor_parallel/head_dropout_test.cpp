// Masks of dropout: inside the heads those of the whole tensor, in the residual stream the same on
// all ranks.
#include "06_tensor_parallel/head_dropout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "common/nn/dropout.h"
#include "tests/06_tensor_parallel/split_layers.h"

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

std::vector<double> mask(Layer& layer, const Rank& rank) {
  Tensor x({2, 3, 8}, DType::F32, rank.device);
  ops::fill(x, 1);
  Saved saved;
  return to_doubles(layer.forward(std::move(x), saved, {}));
}

TEST(HeadDropout, DiffersBetweenRanksWhereDropoutIsTheSame) {
  std::mutex mutex;
  std::map<int, std::vector<double>> inside, residual;
  split::on_groups(
      3,
      [&](const Rank& rank, Communicator& tp) {
        HeadDropout in_heads(rank, tp, "dropout", kRate, kSeed);
        Dropout behind_the_sum(rank, "dropout", kRate, kSeed);
        const std::vector<double> own = mask(in_heads, rank), same = mask(behind_the_sum, rank);
        const std::lock_guard lock(mutex);
        inside[tp.rank()] = own;
        residual[tp.rank()] = same;
      },
      1);
  for (int r = 1; r < 3; ++r) {
    EXPECT_EQ(residual[r], residual[0]) << "rank " << r << ": the residual stream drops the same";
    EXPECT_NE(inside[r], inside[0]) << "rank " << r << " drops in its heads what rank 0 drops";
  }
  EXPECT_NE(inside[1], inside[2]) << "ranks 1 and 2 drop the same in their heads";
}

TEST(HeadDropoutGiven, IsTheIdentityWithoutRateAndOutsideTraining) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    Saved saved;
    const Tensor x = random_tensor({2, 3, 4}, DType::F32, rank.device, "x");
    EXPECT_TRUE(same_bits(HeadDropout(rank, tp, "d", 0, kSeed).forward(x.clone(), saved, {}), x));
    HeadDropout half(rank, tp, "d", 0.5, kSeed);
    EXPECT_TRUE(same_bits(half.forward(x.clone(), saved, {.training = false}), x));
    EXPECT_FALSE(same_bits(half.forward(x.clone(), saved, {}), x));
    EXPECT_EQ(saved.size(), 0u);
  });
}

TEST(HeadDropout, LeavesAloneWhatOthersHold) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    Saved saved;
    const Tensor x = random_tensor({2, 3, 4}, DType::F32, rank.device, "x"), before = x.clone();
    HeadDropout(rank, tp, "d", 0.5, kSeed).forward(x.share(), saved, {});
    EXPECT_TRUE(same_bits(x, before));
  });
}

}  // namespace
}  // namespace aisc
