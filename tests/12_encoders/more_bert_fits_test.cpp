// What of BERT-Base fits: bytes by hand, the largest that fits, and which forms end where. Nothing
// is computed, so that the sizes are the model's own; texts are short, and ranks few.
#include "12_encoders/more/bert_fits.h"

#include <gtest/gtest.h>

#include "tests/support/error_says.h"

namespace aisc {
namespace {

constexpr BertSplit kSplits[] = {BertSplit::Tensor, BertSplit::Sequence};
constexpr FitScores kForms[] = {FitScores::Kept, FitScores::Again};
constexpr double kRoom = 3e9;  // bytes of a device

// With one word to be guessed each: the rows of these are whole on each sequence rank.
BertFit short_texts(BertSplit split, int ranks, FitScores scores = FitScores::Kept) {
  return {
      .split = split, .scores = scores, .ranks = ranks, .samples = 4, .tokens = 48, .masked = 1};
}

TEST(BertFits, OneMoreDoesNot) {
  for (const BertSplit split : kSplits) {
    BertFit fit = short_texts(split, 2);
    fit.samples = most_samples(fit, kRoom);
    EXPECT_GT(fit.samples, 1);
    EXPECT_LE(static_cast<double>(step_bytes(fit)), kRoom);
    ++fit.samples;
    EXPECT_GT(static_cast<double>(step_bytes(fit)), kRoom);
    fit = short_texts(split, 2);
    fit.tokens = most_tokens(fit, kRoom, 16);
    EXPECT_EQ(fit.tokens % 16, 0);
    EXPECT_LE(static_cast<double>(step_bytes(fit)), kRoom);
    fit.tokens += 16;
    EXPECT_GT(static_cast<double>(step_bytes(fit)), kRoom);
  }
}

TEST(BertFits, NotAtAllOnASmallDevice) {
  const BertFit fit = short_texts(BertSplit::Sequence, 2);
  EXPECT_EQ(most_samples(fit, 1e9), 0) << "weights, gradients and AdamW's states are 1.8 GB";
  EXPECT_EQ(most_tokens(fit, 1e9, 16), 0);
}

TEST(BertFits, TensorRanksDivideTheHeads) {
  for (const FitScores scores : kForms)
    for (const int ranks : {1, 2, 3, 4, 6, 12})
      EXPECT_TRUE(can_share(short_texts(BertSplit::Tensor, ranks, scores))) << ranks;
  for (const int ranks : {5, 8, 16, 24})
    EXPECT_FALSE(can_share(short_texts(BertSplit::Tensor, ranks))) << ranks;
  EXPECT_TRUE(error_says([] { step_bytes(short_texts(BertSplit::Tensor, 8)); }, {"12", "8"}));
}

TEST(BertFits, SequenceRanksDivideTheTokens) {
  for (const int ranks : {1, 5, 8, 16, 24})
    EXPECT_EQ(can_share(short_texts(BertSplit::Sequence, ranks)), 48 % ranks == 0) << ranks;
  EXPECT_TRUE(can_share(short_texts(BertSplit::Sequence, 5, FitScores::Again)));
  EXPECT_TRUE(error_says([] { step_bytes(short_texts(BertSplit::Sequence, 5)); }, {"48", "5"}));
}

TEST(BertFits, ARankThatNeedsMoreThanItsDeviceSaysSo) {
  EXPECT_TRUE(error_says([] { step_bytes(short_texts(BertSplit::Sequence, 2), 1e9); },
                         {"rank ", "out of memory", "1000000000"}));
}

// As in the paper's figure for a batch that grows with the ranks: sequence ranks take what one
// takes.
TEST(BertFits, ABatchThatGrowsWithTheRanks) {
  const auto bytes = [](BertSplit split, int ranks) {
    BertFit fit = short_texts(split, ranks);
    fit.samples = 32 * ranks;
    return static_cast<double>(step_bytes(fit));
  };
  const double alone = bytes(BertSplit::Sequence, 1);
  EXPECT_EQ(bytes(BertSplit::Tensor, 1), alone);
  for (const int ranks : {2, 4, 6}) EXPECT_NEAR(bytes(BertSplit::Sequence, ranks) / alone, 1, 0.01);
  EXPECT_GT(bytes(BertSplit::Tensor, 6), bytes(BertSplit::Tensor, 4));
}

TEST(BertFits, MoreRanksTakeLessOfTheSameBatch) {
  for (const FitScores scores : kForms)
    for (const BertSplit split : kSplits) {
      double before = 1e18;
      for (const int ranks : {1, 2, 4, 12}) {
        BertFit fit = short_texts(split, ranks, scores);
        fit.samples = 256;  // so that most of it is activations
        const auto bytes = static_cast<double>(step_bytes(fit));
        EXPECT_LT(bytes, before) << ranks;
        before = bytes;
      }
    }
}

// Sequence ranks have all weights and a part of what a sample takes; tensor ranks have a part of
// the weights, and of a sample what is between the branches whole.
TEST(BertFits, SequenceRanksShareActivationsAndTensorRanksWeights) {
  const auto bytes = [](BertSplit split, int ranks, std::int64_t samples) {
    BertFit fit = short_texts(split, ranks);
    fit.samples = samples;
    return static_cast<double>(step_bytes(fit));
  };
  constexpr std::int64_t kFew = 8, kMany = 40;
  const auto a_sample = [&](BertSplit split, int ranks) {
    return (bytes(split, ranks, kMany) - bytes(split, ranks, kFew)) / (kMany - kFew);
  };
  const auto fixed = [&](BertSplit split, int ranks) {
    return bytes(split, ranks, kFew) - kFew * a_sample(split, ranks);
  };
  const double alone = a_sample(BertSplit::Sequence, 1);
  EXPECT_NEAR(a_sample(BertSplit::Sequence, 4) / alone, 0.25, 0.05);
  EXPECT_GT(a_sample(BertSplit::Tensor, 4) / alone, 0.3);
  EXPECT_NEAR(fixed(BertSplit::Sequence, 4) / fixed(BertSplit::Sequence, 1), 1, 0.05);
  EXPECT_LT(fixed(BertSplit::Tensor, 4) / fixed(BertSplit::Tensor, 1), 0.4);
}

}  // namespace
}  // namespace aisc
