// Embeddings, and cross entropy fused with softmax: tables indexed by tokens.
#include <cmath>
#include <string>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;
using reference::Ids;

// ---- embedding ----------------------------------------------------------------------------------

class Embedding : public PerDType {};
INSTANTIATE_TEST_SUITE_P(Ops, Embedding, kFloatingTypes, dtype_name);

TEST_P(Embedding, LooksRowsUp) {
  const Tensor table = tensor({1, 2, 3, 4, 5, 6}, {3, 2}), out = unwritten({4, 2});
  const Tensor ids = ids_tensor({2, 0, 0, 1}, device_);
  ops::embedding(out, table, ids);
  EXPECT_EQ(to_doubles(out), (std::vector<double>{5, 6, 1, 2, 1, 2, 3, 4}));
  ops::embedding(out, table, ids, Into::Accumulate);
  EXPECT_EQ(to_doubles(out), (std::vector<double>{10, 12, 2, 4, 2, 4, 6, 8}));
}

TEST_P(Embedding, MatchesReference) {
  for (const Index C : {1, 7, 64, 257})
    for (const Index N : {0, 1, 65, 400}) {
      const Ids ids = random_ids(N, 50, "ids");
      const Tensor table = random({50, C}, "table"), out = unwritten({N, C});
      ops::embedding(out, table, ids_tensor(ids, device_));
      const Array rows = reference::embedding(to_array(table), ids);
      EXPECT_EQ(to_doubles(out), rows.values);  // a copy: exact
      const Tensor sum = random({N, C}, "out", 3);
      const Array before = to_array(sum);
      ops::embedding(sum, table, ids_tensor(ids, device_), Into::Accumulate);
      EXPECT_TRUE(all_close(sum, reference::add(before, rows).values, rounded_));
    }
}

TEST_P(Embedding, BackwardMatchesReference) {
  for (const Index C : {1, 7, 64, 257})
    for (const Index N : {0, 1, 65, 400}) {
      const Ids ids = random_ids(N, 50, "ids");  // most ids repeat, some never occur
      const Tensor dout = random({N, C}, "dout"), dtable = unwritten({50, C});
      const Tensor id_tensor = ids_tensor(ids, device_);
      const Array sums = reference::embedding_backward(to_array(dout), ids, 50);
      ops::embedding_backward(dtable, dout, id_tensor, Into::Overwrite);
      EXPECT_TRUE(all_close(dtable, sums.values, rounded_)) << N << " x " << C;
      const Tensor more = random({50, C}, "before", 10);
      const Array before = to_array(more);
      ops::embedding_backward(more, dout, id_tensor, Into::Accumulate);
      EXPECT_TRUE(all_close(more, reference::add(before, sums).values, rounded_));
      if (!is_short()) continue;
      const Tensor wide({50, C}, DType::F32, device_);
      ops::embedding_backward(wide, dout, id_tensor, Into::Overwrite);
      EXPECT_TRUE(all_close(wide, sums.values, kF32Tolerance));
      ops::embedding_backward(wide, dout, id_tensor, Into::Accumulate);
      EXPECT_TRUE(all_close(wide, reference::scale(sums, 2).values, kF32Tolerance));
    }
}

// BF16 holds whole numbers up to 256, F16 up to 2048; 256 + 1 rounds back to 256 (ties to even).
// Summed in F32 and rounded once, eight ones on top of 256 are 264; rounded after each addition,
// 256.
TEST_P(Embedding, BackwardOfRepeatedIdsRoundsOnce) {
  const double large = dtype_ == DType::F16 ? 2048 : 256;
  std::vector<double> values(9, 1.0);
  values[0] = large;
  const Tensor dout = tensor(values, {9, 1}), dtable = unwritten({3, 1});
  const Tensor ids = ids_tensor(Ids(9, 1), device_);
  ops::embedding_backward(dtable, dout, ids, Into::Overwrite);
  EXPECT_EQ(to_doubles(dtable), (std::vector<double>{0, large + 8, 0}));

  const Tensor ones = tensor(std::vector<double>(8, 1.0), {8, 1});
  const Tensor more = tensor({5, large, 7}, {3, 1});
  ops::embedding_backward(more, ones, ids_tensor(Ids(8, 1), device_), Into::Accumulate);
  EXPECT_EQ(to_doubles(more), (std::vector<double>{5, large + 8, 7}));
}

// What two ranks, three, and one that has no row at all, make of their rows together.
TEST_P(Embedding, OfPartsIsThatOfTheWhole) {
  const Index V = 50, C = 7, N = 65;
  const Tensor table = random({V, C}, "table"), dout = random({N, C}, "dout");
  const Tensor ids = ids_tensor(random_ids(N, V, "ids"), device_);
  const Tensor whole = unwritten({N, C}), dtable = unwritten({V, C});
  ops::embedding(whole, table, ids);
  ops::embedding_backward(dtable, dout, ids, Into::Overwrite);
  for (const std::vector<Index>& cuts :
       {std::vector<Index>{0, 25, 50}, {0, 13, 40, 50}, {0, 1, 49, 50, 50}}) {
    const Tensor sum = Tensor::zeros({N, C}, dtype_, device_);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const ops::TablePart part{.begin = cuts[i], .all = V};
      const ConstView mine = table.view().rows(cuts[i], cuts[i + 1]);
      ops::embedding(sum, mine, ids, Into::Accumulate, part);
      const Tensor alone = unwritten({N, C}), its = unwritten(mine.shape());
      ops::embedding(alone, mine, ids, Into::Overwrite, part);
      for (Index n = 0; n < N; ++n) {
        const std::int32_t id = random_ids(N, V, "ids")[static_cast<std::size_t>(n)];
        const bool here = id >= cuts[i] && id < cuts[i + 1];
        EXPECT_EQ(to_doubles(alone.view().rows(n, n + 1)),
                  here ? to_doubles(whole.view().rows(n, n + 1)) : std::vector<double>(C, 0.0));
      }
      ops::embedding_backward(its, dout, ids, Into::Overwrite, part);
      EXPECT_EQ(to_doubles(its), to_doubles(dtable.view().rows(cuts[i], cuts[i + 1])));
    }
    EXPECT_EQ(to_doubles(sum), to_doubles(whole));
  }
}

// ---- cross entropy ------------------------------------------------------------------------------

class CrossEntropy : public PerDType {
 protected:
  struct Result {
    Tensor losses, log_sum_exp;
  };
  Result forward(ConstView logits, ConstView targets, Index classes, double smoothing = 0) {
    const Index N = logits.shape()[0];
    Result r{unwritten_sums({N}), unwritten_sums({N})};
    ops::cross_entropy(r.losses, r.log_sum_exp, logits, targets, classes, {}, smoothing);
    return r;
  }
  void expect_reference(const Ids& ids, Index V, Index padding, double smoothing = 0);
};
INSTANTIATE_TEST_SUITE_P(Ops, CrossEntropy, kFloatingTypes, dtype_name);

TEST_P(CrossEntropy, OfUniformLogitsIsLogOfTheClasses) {
  const Tensor logits = tensor(std::vector<double>(3 * 65, 2.5), {3, 65});
  const Result r = forward(logits, ids_tensor({0, 31, 64}, device_), 65);
  EXPECT_TRUE(all_close(r.losses, std::vector<double>(3, std::log(65)), tolerance_of(sums_)));
}

// Two classes with logits 0 and ln 3: probabilities 1/4 and 3/4.
TEST_P(CrossEntropy, OfTwoClassesByHand) {
  const double ln3 = to_doubles(tensor({std::log(3)}, {1}))[0];  // as this type has it
  const double odds = std::exp(ln3);
  const Tensor logits = tensor({0, ln3}, {1, 2}), dlogits = unwritten({1, 2});
  const Tensor targets = ids_tensor({0}, device_);
  const Result r = forward(logits, targets, 2);
  EXPECT_TRUE(all_close(r.losses, {std::log(1 + odds)}, tolerance_of(sums_)));
  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, 2, 0.5);
  EXPECT_TRUE(all_close(dlogits, {0.5 * (1 / (1 + odds) - 1), 0.5 * odds / (1 + odds)}, rounded_));
}

void CrossEntropy::expect_reference(const Ids& ids, Index V, Index padding, double smoothing) {
  const auto N = static_cast<Index>(ids.size());
  SCOPED_TRACE(std::to_string(N) + " x " + std::to_string(V));
  const Tensor logits = random({N, V + padding}, "logits", 3);
  const Tensor dlogits = unwritten({N, V + padding});
  const Tensor targets = ids_tensor(ids, device_);
  const Result r = forward(logits, targets, V, smoothing);
  const reference::CrossEntropy expected =
      reference::cross_entropy(to_array(logits), ids, V, smoothing);
  // With one class the loss is the difference of two equal numbers.
  const Tolerance tolerance = tolerance_of(sums_);
  if (V > 1)
    EXPECT_TRUE(all_close(r.losses, expected.losses.values, tolerance));
  else
    for (const double loss : to_doubles(r.losses)) EXPECT_NEAR(loss, 0, 1e-6);
  EXPECT_TRUE(all_close(r.log_sum_exp, expected.log_sum_exp.values, tolerance));

  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, V, 0.125, {}, smoothing);
  const Array gradients =
      reference::cross_entropy_backward(to_array(logits), ids, V, 0.125, smoothing);
  if (V > 1) {
    EXPECT_TRUE(all_close(dlogits, gradients.values, rounded_));
  }
  ops::cross_entropy_backward(logits, logits, r.log_sum_exp, targets, V, 0.125, {}, smoothing);
  EXPECT_TRUE(same_bits(logits, dlogits)) << "in place";
}

TEST_P(CrossEntropy, MatchesReference) {
  for (const Index V : {1, 2, 17, 64, 257, 1000, 3000})
    for (const Index N : {0, 1, 5, 33})
      for (const Index padding : {0, 9}) {
        Ids ids = random_ids(N, V, "targets");
        if (N > 3) ids[3] = -1;
        expect_reference(ids, V, padding);
      }
}

// GPT-2's, padded and not.
TEST_P(CrossEntropy, OfAVocabularyMatchesReference) {
  for (const Index padding : {47, 0}) expect_reference({50256, 0, 50255}, 50257, padding);
}

TEST_P(CrossEntropy, WithSmoothedLabelsMatchesReference) {
  for (const Index V : {1, 2, 17, 64, 257, 3000})
    for (const Index padding : {0, 9}) {
      Ids ids = random_ids(5, V, "targets");
      ids[3] = -1;
      for (const double smoothing : {0.1, 0.9}) expect_reference(ids, V, padding, smoothing);
    }
}

// Four classes, of which three have 0 and the last ln 5, and smoothing .2: what is smoothed is .05
// each, so that the target, class 0, has .85 and not .8. The probabilities are 1/8 and 5/8.
TEST_P(CrossEntropy, WithSmoothedLabelsByHand) {
  const double ln5 = to_doubles(tensor({std::log(5)}, {1}))[0];  // as this type has it
  const double odds = std::exp(ln5), all = 3 + odds;
  const Tensor logits = tensor({0, 0, 0, ln5}, {1, 4}), dlogits = unwritten({1, 4});
  const Tensor targets = ids_tensor({0}, device_);
  const Result r = forward(logits, targets, 4, 0.2);
  EXPECT_TRUE(all_close(r.losses, {std::log(all) - 0.05 * ln5}, tolerance_of(sums_)))
      << "log(8) - .05 ln 5: the target has .85, each other class .05";
  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, 4, 0.5, {}, 0.2);
  const double rest = 0.5 * (1 / all - 0.05);
  EXPECT_TRUE(all_close(dlogits, {0.5 * (1 / all - 0.85), rest, rest, 0.5 * (odds / all - 0.05)},
                        rounded_));
}

// Where the softmax is what the labels aim at, nothing is left to learn.
TEST_P(CrossEntropy, WithSmoothedLabelsIsLeastAtTheirDistribution) {
  const double smoothing = 0.3, other = std::log(smoothing / 5);
  const Tensor logits =
      tensor({other, std::log(1 - smoothing + smoothing / 5), other, other, other}, {1, 5});
  const Tensor targets = ids_tensor({1}, device_), dlogits = unwritten({1, 5});
  const Result r = forward(logits, targets, 5, smoothing);
  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, 5, 1, {}, smoothing);
  for (const double gradient : to_doubles(dlogits)) EXPECT_NEAR(gradient, 0, rounded_.relative);
}

TEST_P(CrossEntropy, WithSmoothedLabelsHasNoneOfPaddingNorWithoutATarget) {
  const Tensor logits = tensor({1, 2, 3, NAN, 1, 2, 3, NAN}, {2, 4}), dlogits = unwritten({2, 4});
  const Tensor targets = ids_tensor({2, -1}, device_);
  const Result r = forward(logits, targets, 3, 0.1);
  const double lse = std::log(std::exp(1) + std::exp(2) + std::exp(3));
  EXPECT_TRUE(all_close(r.losses, {lse - 0.9 * 3 - 0.1 * 2, 0}, tolerance_of(sums_)));
  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, 3, 1, {}, 0.1);
  const std::vector<double> found = to_doubles(dlogits);
  EXPECT_EQ((std::vector<double>{found.begin() + 3, found.end()}), std::vector<double>(5, 0.0));
  double sum = 0;  // both distributions sum to 1
  for (int c = 0; c < 3; ++c) sum += found[static_cast<std::size_t>(c)];
  EXPECT_NEAR(sum, 0, rounded_.relative);
}

TEST_P(CrossEntropy, OfHugeLogitsIsFinite) {
  const double huge = 1e4;  // as every type has it: 9984 in BF16
  const Tensor logits = tensor({huge, -huge, 0, -huge, huge, huge}, {2, 3});
  const double seen = to_doubles(logits)[0];
  const Tensor targets = ids_tensor({0, 0}, device_), dlogits = unwritten({2, 3});
  const Result r = forward(logits, targets, 3);
  EXPECT_TRUE(all_close(r.losses, {0, 2 * seen + std::log(2)}, tolerance_of(sums_)));
  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, 3, 1);
  // The log-sum-exp of the second row is 1e4 + log 2, known to 1e4 roundoffs.
  const double lost = huge * (dtype_ == DType::F64 ? 0x1p-52 : 0x1p-23);
  EXPECT_TRUE(all_close(dlogits, {0, 0, 0, -1, 0.5, 0.5}, {rounded_.relative + lost}));
}

// Classes that were ruled out beforehand, whole blocks of them.
TEST_P(CrossEntropy, GivesNothingToMinusInfinity) {
  const Index V = 2500;
  std::vector<double> values(V, -INFINITY);
  values[1200] = values[1201] = values[2400] = values[2401] = 3;
  const Tensor logits = tensor(values, {1, V}), dlogits = unwritten({1, V});
  const Tensor targets = ids_tensor({1201}, device_);
  const Result r = forward(logits, targets, V);
  EXPECT_TRUE(all_close(r.losses, {std::log(4)}, tolerance_of(sums_)));
  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, V, 1);
  std::vector<double> expected(V, 0.0);
  expected[1200] = expected[2400] = expected[2401] = 0.25;
  expected[1201] = -0.75;
  EXPECT_TRUE(all_close(dlogits, expected, {rounded_.relative, 1.0}));
}

// Each rank has some of the classes, and the last of them padding alone. Of a target that is
// elsewhere there is no loss, and its row is a softmax without the one.
TEST_P(CrossEntropy, OfPartsIsThatOfTheWhole) {
  const Index V = 40, N = 9, cuts[] = {0, 17, 24, 40, 40};
  const Tensor logits = random({N, V}, "logits", 3), whole = unwritten({N, V});
  Ids ids = random_ids(N, V, "targets");
  ids[3] = -1;
  const Tensor targets = ids_tensor(ids, device_);
  const Result all = forward(logits, targets, V);
  ops::cross_entropy_backward(whole, logits, all.log_sum_exp, targets, V, 0.5);
  const Array values = to_array(logits), gradients = to_array(whole);
  std::vector<double> exponentials(N, 0.0);
  for (int i = 0; i < 4; ++i) {
    const Index begin = cuts[i], classes = cuts[i + 1] - begin, columns = classes + 2;  // padded
    std::vector<double> mine(static_cast<std::size_t>(N * columns), INFINITY), expected;
    for (Index n = 0; n < N; ++n)
      for (Index c = 0; c < columns; ++c) {
        const auto of = static_cast<std::size_t>(n * V + begin + c);
        if (c < classes) mine[static_cast<std::size_t>(n * columns + c)] = values.values[of];
        expected.push_back(c < classes ? gradients.values[of] : 0.0);
      }
    const Tensor part = tensor(mine, {N, columns}), dpart = unwritten({N, columns});
    const Result r{unwritten_sums({N}), unwritten_sums({N})};
    const ops::TablePart here{.begin = begin, .all = V};
    ops::cross_entropy(r.losses, r.log_sum_exp, part, targets, classes, here);
    const auto losses = to_doubles(r.losses), lse = to_doubles(r.log_sum_exp);
    for (std::size_t n = 0; n < lse.size(); ++n) {
      exponentials[n] += std::exp(lse[n]);
      const bool mine_too = ids[n] >= begin && ids[n] < begin + classes;
      const double logit = mine_too ? values.values[n * V + static_cast<std::size_t>(ids[n])] : 0.0;
      EXPECT_NEAR(losses[n], mine_too ? lse[n] - logit : 0.0, 1e-5);
      if (classes == 0) {
        EXPECT_EQ(lse[n], -INFINITY);
      }
    }
    ops::cross_entropy_backward(dpart, part, all.log_sum_exp, targets, classes, 0.5, here);
    EXPECT_EQ(to_doubles(dpart), expected) << "part " << i;
  }
  const auto lse = to_doubles(all.log_sum_exp);
  for (std::size_t n = 0; n < lse.size(); ++n) EXPECT_NEAR(std::log(exponentials[n]), lse[n], 1e-5);
}

// Padding columns are no classes: whatever they hold, even NaN, changes nothing and gets no
// gradient.
TEST_P(CrossEntropy, IgnoresPadding) {
  const Index N = 3, V = 20, padded = 27;
  const Tensor bare = random({N, V}, "logits"), logits = unwritten({N, padded});
  Array wide({N, padded}, NAN);
  const Array narrow = to_array(bare);
  for (Index n = 0; n < N; ++n)
    for (Index c = 0; c < V; ++c) wide(n, c) = narrow(n, c);
  write_doubles(logits, wide.values);
  const Ids ids{4, 19, 0};
  const Tensor targets = ids_tensor(ids, device_), dlogits = unwritten({N, padded});
  const Result r = forward(logits, targets, V);
  const reference::CrossEntropy expected = reference::cross_entropy(narrow, ids, V);
  EXPECT_TRUE(all_close(r.losses, expected.losses.values, tolerance_of(sums_)));
  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, V, 1);
  const Array gradients = reference::cross_entropy_backward(narrow, ids, V, 1);
  const Array found = to_array(dlogits);
  for (Index n = 0; n < N; ++n)
    for (Index c = V; c < padded; ++c) EXPECT_EQ(found(n, c), 0);
  for (Index n = 0; n < N; ++n)
    EXPECT_TRUE(all_close(
        dlogits.view().flat(n * padded, V),
        {gradients.values.begin() + n * V, gradients.values.begin() + (n + 1) * V}, rounded_));
}

TEST_P(CrossEntropy, WithoutATargetHasNoLossAndNoGradient) {
  const Tensor logits = random({2, 9}, "logits"), dlogits = unwritten({2, 9});
  const Tensor targets = ids_tensor({-1, 3}, device_);
  const Result r = forward(logits, targets, 9);
  EXPECT_EQ(to_doubles(r.losses)[0], 0);
  EXPECT_GT(to_doubles(r.losses)[1], 0);
  ops::cross_entropy_backward(dlogits, logits, r.log_sum_exp, targets, 9, 1);
  EXPECT_EQ(to_doubles(dlogits.rows(0, 1)), std::vector<double>(9, 0.0));
  EXPECT_NE(to_doubles(dlogits.rows(1, 2)), std::vector<double>(9, 0.0));
}

TEST_P(CrossEntropy, OfNaNIsNaN) {
  for (const Index at : {0, 17, 39}) {
    const Tensor logits = random({2, 40}, "logits");
    write_doubles(logits.view().flat(40 + at, 1), {NAN});
    const Result r = forward(logits, ids_tensor({1, 1}, device_), 40);
    EXPECT_FALSE(std::isnan(to_doubles(r.losses)[0]));
    EXPECT_TRUE(std::isnan(to_doubles(r.losses)[1])) << at;
  }
}

}  // namespace
}  // namespace aisc
