// Two losses at once: worked by hand, in parts, and their gradient.
#include "12_encoders/bert_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/nn/cross_entropy.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

// Of 3 words in 4 columns, one of which is padding; at most 2 masked words a sample.
BertLoss make_loss(TestWorld& world, std::int64_t batch) {
  return {world.rank, std::make_unique<CrossEntropy>(world.rank, 3), 4, batch, 2};
}

// Of samples, and of words over 3 classes and padding, of which the true one has this probability.
std::vector<double> scores_with(const std::vector<double>& samples,
                                const std::vector<double>& words) {
  std::vector<double> scores;
  for (const double p : samples) scores.insert(scores.end(), {std::log(p), std::log(1 - p)});
  for (const double p : words) {
    const double other = std::log((1 - p) / 2);
    scores.insert(scores.end(), {other, std::log(p), other, 100});
  }
  return scores;
}

struct LossOf {
  double sum = 0;
  std::vector<double> gradient;
};
LossOf loss_of(TestWorld& world, const BertLoss& loss, const std::vector<double>& scores,
               const std::vector<std::int32_t>& labels, const Pass& pass, double factor = 1) {
  const Tensor x = from_doubles(scores, {std::ssize(scores)}, DType::F64, world.device);
  Saved saved;
  LossOf found;
  found.sum = loss.forward(x.clone(), ids_tensor(labels, world.device), saved, pass);
  found.gradient = to_doubles(loss.backward(saved, factor));
  EXPECT_EQ(saved.size(), 0u) << "backward pops what forward pushed";
  return found;
}

::testing::AssertionResult is_number(TestWorld& world, const std::string& what, double found,
                                     double expected, const std::vector<KnownMistake>& mistakes) {
  const Tensor one = from_doubles({found}, {1}, DType::F64, world.device);
  return numbers_are(what, one, {expected}, mistakes);
}

// The global batch is 5 samples with 6 masked words. Here are 2 of the samples, whose true class
// has probability 1/2 and 1/4, so that their losses are 1 and 2 times log 2, and 3 of the words,
// with 1/2, 1/8 and 1/2, or 1 + 3 + 1 times log 2. A mean over 5 samples is to weigh as much as one
// over 6 words: a sample counts 6/5.
TEST(BertLoss, IsTheSumOfTwoMeans) {
  TestWorld world;
  const BertLoss loss = make_loss(world, 5);
  const Tensor picked = ids_tensor({0, 1, 2, 3, 4, 5}, world.device);
  const Pass pass{.terms = 6, .picked = picked};
  const std::vector<double> scores = scores_with({0.5, 0.25}, {0.5, 0.125, 0.9, 0.5});
  const double found = loss_of(world, loss, scores, {0, 0, 1, 1, -1, 1}, pass).sum / std::log(2.0);
  EXPECT_TRUE(is_number(
      world, "2 samples of 5 and 3 masked words of 6, in units of log 2: their loss", found,
      5 + 6.0 / 5 * 3,
      {{"samples and words counted alike", {5 + 3}},
       {"the samples' loss was left out", {5}},
       {"the samples here were counted, and not those of the global batch", {5 + 6.0 / 2 * 3}},
       {"the masked words here were counted, and not those of the global batch", {5 + 3.0 / 5 * 3}},
       {"the places of words here were counted, and not the global batch's words",
        {5 + 4.0 / 5 * 3}},
       {"the words had a mean of their own here, and a share by samples",
        {6.0 * 2 / 5 * 5 / 3 + 6.0 / 5 * 3}},
       {"the words' loss was weighted, and not the samples'", {6.0 / 5 * 5 + 3}},
       {"the weight is upside down", {5 + 5.0 / 6 * 3}},
       {"masked words were counted among the samples", {5 + 6.0 / (5 + 6) * 3}},
       {"the mean was taken here, where the caller divides", {(5 + 6.0 / 5 * 3) / 6}}}));
}

// The same samples one at a time, as two micro-batches or two ranks have them.
TEST(BertLoss, AddsUpOverPartsOfTheBatch) {
  TestWorld world;
  const BertLoss loss = make_loss(world, 2);
  const Tensor both = ids_tensor({0, 1, 2, 3, 4, 5}, world.device);
  const Tensor one = ids_tensor({0, 1, 2}, world.device);
  const LossOf whole = loss_of(world, loss, scores_with({0.5, 0.3}, {0.2, 0.1, 0.7, 0.6}),
                               {0, 1, 1, 1, 2, -1}, {.terms = 3, .picked = both});
  const LossOf first =
      loss_of(world, loss, scores_with({0.5}, {0.2, 0.1}), {0, 1, 1}, {.terms = 3, .picked = one});
  const LossOf second =
      loss_of(world, loss, scores_with({0.3}, {0.7, 0.6}), {1, 2, -1}, {.terms = 3, .picked = one});
  EXPECT_TRUE(is_number(world, "two halves of a batch: the sum of their losses",
                        first.sum + second.sum, whole.sum,
                        {{"each part counted its own samples, and not those of the batch",
                          {-std::log(0.2 * 0.1 * 0.7) - 3 * std::log(0.5 * 0.7)}}}));
}

// A window that is evaluated is all there is: its own samples and terms count.
TEST(BertLoss, CountsAWindowsOwnSamplesInEvaluation) {
  TestWorld world;
  const BertLoss loss = make_loss(world, 100);
  const Tensor picked = ids_tensor({0, 1, 2, 3, 4, 5}, world.device);
  const std::vector<double> scores = scores_with({0.5, 0.25}, {0.5, 0.125, 0.5, 0.9});
  const double found = loss_of(world, loss, scores, {0, 0, 1, 1, 1, -1},
                               {.training = false, .terms = 3, .picked = picked})
                           .sum /
                       std::log(2.0);
  EXPECT_TRUE(is_number(
      world, "a window of 2 samples with 3 masked words, in units of log 2: its loss", found,
      5 + 3.0 / 2 * 3, {{"the samples of a training step were counted", {5 + 3.0 / 100 * 3}}}));
}

TEST(BertLoss, HasTheGradientOfItsSum) {
  TestWorld world;
  const BertLoss loss = make_loss(world, drawn("samples of the batch", 3, 9));
  const Tensor picked = ids_tensor({0, 1, 2, 3, 4, 5}, world.device);
  const Pass pass{.terms = static_cast<double>(drawn("masked words", 4, 20)), .picked = picked};
  const Tensor labels = ids_tensor({1, -1, 2, 0, -1, 1}, world.device);
  const Tensor x = random_tensor({2 * 2 + 4 * 4}, DType::F64, world.device, "scores");
  Saved saved;
  loss.forward(x.clone(), labels, saved, pass);
  const Tensor dx = loss.backward(saved, 0.3);
  const auto of_x = [&] {
    Saved nothing = Saved::nothing();
    return 0.3 * loss.forward(x.clone(), labels, nothing, pass);
  };
  EXPECT_TRUE(check_gradient(of_x, x, dx))
      << "scores 0 to 3 are two samples', four each of the others a word's";
  EXPECT_EQ(loss.all_logits(x.clone()).shape(), (Shape{4, 4}));
}

TEST(BertLossGiven, SaysWhatItIsNotGiven) {
  TestWorld world;
  const BertLoss loss = make_loss(world, 2);
  const Tensor picked = ids_tensor({0, 1, 2}, world.device);
  const std::vector<double> scores = scores_with({0.5}, {0.5, 0.5});
  EXPECT_TRUE(error_says(
      [&] {
        loss_of(world, loss, scores, {0, 1, 1}, {.picked = picked});
      },
      {"Pass::terms is 0, expected how many masked words the batch has"}));
  EXPECT_TRUE(error_says(
      [&] {
        loss_of(world, loss, scores, {2, 1, 1}, {.terms = 2, .picked = picked});
      },
      {"cross_entropy", "target", "2"}));
  EXPECT_TRUE(error_says(
      [&] {
        loss_of(world, loss, scores, {0, 3, 1}, {.terms = 2, .picked = picked});
      },
      {"cross_entropy", "target", "3"}));
  Saved saved;
  const Tensor x = from_doubles(scores, {10}, DType::F64, world.device);
  EXPECT_EQ(loss.forward(x.clone(), ids_tensor({5, 5}, world.device), saved, {}), 0)
      << "nothing is picked: there are no labels";
}

}  // namespace
}  // namespace aisc
