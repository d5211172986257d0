// Wrong arguments: every operation says its name, what it found and what it expected.
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/ops/per_dtype.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using ops::Into;

class Arguments : public PerDevice {
 protected:
  // Zeros of a shape.
  Tensor f32(auto... extents) { return Tensor::zeros({extents...}, DType::F32, device_); }
  Tensor f64(auto... extents) { return Tensor::zeros({extents...}, DType::F64, device_); }
  Tensor bf16(auto... extents) { return Tensor::zeros({extents...}, DType::BF16, device_); }
  Tensor ids(auto... values) { return ids_tensor({values...}, device_); }

  // What a call throws, or its device when it is waited for: data are checked where they are.
  ::testing::AssertionResult data_error_says(const std::function<void()>& call,
                                             const std::vector<std::string>& fragments) {
    return error_says([&] { call_and_wait(device_, call); }, fragments);
  }

  const Philox random_{1, "x"};
};
INSTANTIATE_TEST_SUITE_P(Ops, Arguments, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

TEST_P(Arguments, OfMatmulHaveSizesThatFit) {
  EXPECT_TRUE(error_says([&] { ops::matmul(f32(2, 4), f32(2, 3), f32(5, 4)); },
                         {"matmul", "b is (5, 4) F32", "expected (3, 4) F32"}));
  EXPECT_TRUE(error_says(
      [&] { ops::matmul(f32(2, 4), f32(2, 3), f32(3, 4), {.transpose = ops::Transpose::Second}); },
      {"matmul", "(3, 4)", "expected (3, 3)"}));
  EXPECT_TRUE(error_says([&] { ops::matmul(f32(2, 5), f32(2, 3), f32(3, 4)); },
                         {"matmul", "out is (2, 5) F32", "expected (2, 4) F32"}));
  EXPECT_TRUE(error_says([&] { ops::matmul(f32(2, 2, 4), f32(2, 2, 3), f32(3, 3, 4)); },
                         {"matmul", "b is (3, 3, 4)", "expected (2, 3, 4)"}));
  EXPECT_TRUE(error_says([&] { ops::matmul(f32(2, 4), f32(6), f32(3, 4)); },
                         {"matmul", "rank of a is 1", "expected 2"}));
}

TEST_P(Arguments, OfMatmulHaveOneType) {
  EXPECT_TRUE(error_says([&] { ops::matmul(f32(2, 4), f32(2, 3), f64(3, 4)); },
                         {"matmul", "b is (3, 4) F64", "expected (3, 4) F32"}));
  EXPECT_TRUE(error_says([&] { ops::matmul(f32(2, 4), f64(2, 3), f64(3, 4)); },
                         {"matmul", "out is (2, 4) F32", "expected (2, 4) F64"}));
  EXPECT_TRUE(error_says([&] { ops::matmul(bf16(2, 4), f32(2, 3), f32(3, 4)); },
                         {"matmul", "out is (2, 4) BF16", "expected (2, 4) F32"}));
  EXPECT_TRUE(error_says([&] { ops::matmul(f64(2, 4), bf16(2, 3), bf16(3, 4)); },
                         {"matmul", "out is (2, 4) F64", "BF16 or F32"}));
}

TEST_P(Arguments, OfMatmulIncludeAFittingBias) {
  const Tensor bias = f32(3);
  EXPECT_TRUE(error_says([&] { ops::matmul(f32(2, 4), f32(2, 3), f32(3, 4), {.bias = bias}); },
                         {"matmul", "bias is (3) F32", "expected (4) F32"}));
  const Tensor right = f32(4);
  const ops::MatmulOptions options{.into = Into::Accumulate, .bias = right};
  EXPECT_TRUE(error_says([&] { ops::matmul(f32(2, 4), f32(2, 3), f32(3, 4), options); },
                         {"matmul", "bias", "Accumulate"}));
}

TEST_P(Arguments, OfElementwiseOperationsHaveOneCountAndType) {
  EXPECT_TRUE(error_says([&] { ops::add(f32(4), f32(4), f32(5)); }, {"add", "b is (5) F32", "4"}));
  EXPECT_TRUE(
      error_says([&] { ops::add(f32(4), f32(4), f64(4)); }, {"add", "b is (4) F64", "F32"}));
  EXPECT_TRUE(error_says([&] { ops::scale(f32(3), f32(4), 2); }, {"scale", "(3) F32", "4"}));
  EXPECT_TRUE(error_says([&] { ops::cast(f32(3), f64(4)); }, {"cast", "(3) F32", "4"}));
  EXPECT_TRUE(error_says([&] { ops::relu(f32(3), f64(3)); }, {"relu", "F32", "F64"}));
  EXPECT_TRUE(error_says([&] { ops::relu_backward(f32(3), f32(3), f32(4)); },
                         {"relu_backward", "(4) F32", "3"}));
  EXPECT_TRUE(error_says([&] { ops::gelu(f32(3), f32(4)); }, {"gelu", "(3) F32", "4"}));
  EXPECT_TRUE(error_says([&] { ops::gelu_backward(f32(3), f64(3), f32(3)); },
                         {"gelu_backward", "F32", "F64"}));
  EXPECT_TRUE(error_says([&] { ops::sigmoid(f32(3), f32(4)); }, {"sigmoid", "(3) F32", "4"}));
  EXPECT_TRUE(error_says([&] { ops::sigmoid_backward(f32(3), f32(3), f64(3)); },
                         {"sigmoid_backward", "y is (3) F64", "F32"}));
}

TEST_P(Arguments, AreFloating) {
  EXPECT_TRUE(error_says([&] { ops::cast(f32(2), ids(1, 2)); }, {"cast", "I32", "floating"}));
  EXPECT_TRUE(error_says([&] { ops::cast(ids(1, 2), f32(2)); }, {"cast", "I32"}));
  EXPECT_TRUE(error_says([&] { ops::fill(ids(1), 1); }, {"fill", "I32", "floating"}));
  EXPECT_TRUE(
      error_says([&] { ops::sum_of_squares(ids(1)); }, {"sum_of_squares", "I32", "floating"}));
}

TEST_P(Arguments, AreThere) {
  EXPECT_TRUE(error_says([&] { ops::add(View(), f32(1), f32(1)); }, {"add", "out", "empty"}));
  EXPECT_TRUE(error_says([&] { ops::gelu(f32(1), ConstView()); }, {"gelu", "x", "empty"}));
  EXPECT_TRUE(error_says([&] { ops::sum_of_squares(ConstView()); }, {"sum_of_squares", "empty"}));
}

TEST_P(Arguments, LiveOnOneDevice) {
  CpuDevice other;
  const Tensor there = Tensor::zeros({3}, DType::F32, other);
  EXPECT_TRUE(error_says([&] { ops::add(f32(3), f32(3), there); }, {"add", "b", "another device"}));
}

TEST_P(Arguments, OfBiasHaveItsColumns) {
  EXPECT_TRUE(error_says([&] { ops::add_bias(f32(2, 3), f32(2, 3), f32(2)); },
                         {"add_bias", "bias is (2) F32", "expected (3) F32"}));
  EXPECT_TRUE(error_says([&] { ops::add_bias_backward(f32(2), f32(2, 3), Into::Overwrite); },
                         {"add_bias_backward", "dbias is (2) F32", "expected (3) F32"}));
  EXPECT_TRUE(error_says([&] { ops::add_bias_backward(bf16(3), f32(2, 3), Into::Overwrite); },
                         {"add_bias_backward", "BF16", "F32"}));
}

TEST_P(Arguments, OfPermuteAreAPermutation) {
  const auto permute = [&](const std::array<int, 4>& order) {
    return [=, this] { ops::permute(f32(2, 3), f32(2, 3), order); };
  };
  for (const int twice_or_outside : {0, 2})
    EXPECT_TRUE(error_says(
        permute({0, twice_or_outside}),
        {"permute", "order", std::to_string(twice_or_outside), "each dimension of x once"}));
  EXPECT_TRUE(error_says(permute({1, 0}), {"permute", "out is (2, 3)", "expected (3, 2)"}));
  EXPECT_TRUE(error_says([&] { ops::permute(f32(3), f32(3), {0}); },
                         {"permute", "rank of x is 1", "2 to 4"}));
}

TEST_P(Arguments, OfDropoutIncludeAPossibleRate) {
  const Tensor x = f32(3);
  for (const double rate : {-0.1, 1.0, 1.5, double(NAN)})
    EXPECT_TRUE(error_says([&] { ops::dropout(x, x, rate, random_, 0); },
                           {"dropout", "rate is", "expected 0 <= rate < 1"}));
  EXPECT_TRUE(error_says([&] { ops::dropout(x, x, 0.1, random_, 0, f32(3)); },
                         {"dropout", "mask is (3) F32", "U8"}));
  EXPECT_TRUE(error_says([&] { ops::dropout_backward(x, x, x, 0.1); },
                         {"dropout_backward", "mask is", "U8"}));
  EXPECT_TRUE(error_says([&] { ops::dropout(f32(2), x, 0.1, random_, 0); },
                         {"dropout", "y is (2) F32", "3"}));
}

TEST_P(Arguments, OfLayerNormHaveItsSizesAndStatisticsInF32) {
  const auto call = [&](const Tensor& y, const Tensor& mean, const Tensor& x,
                        const Tensor& weight) {
    return [&] { ops::layer_norm(y, mean, f32(2), x, weight, weight, 1e-5); };
  };
  EXPECT_TRUE(error_says(call(f32(2, 8), f32(2), f32(2, 8), f32(7)),
                         {"layer_norm", "weight is (7) F32", "expected (8) F32"}));
  EXPECT_TRUE(error_says(call(f32(2, 7), f32(2), f32(2, 8), f32(8)),
                         {"layer_norm", "y is (2, 7) F32", "expected (2, 8) F32"}));
  EXPECT_TRUE(error_says(call(bf16(2, 8), bf16(2), bf16(2, 8), bf16(8)),
                         {"layer_norm", "mean is (2) BF16", "expected (2) F32"}));
  EXPECT_TRUE(
      error_says(call(f32(8), f32(2), f32(8), f32(8)), {"layer_norm", "x is (8)", "2 dimensions"}));
  EXPECT_TRUE(error_says(
      [&] {
        ops::layer_norm_backward(f32(2, 8), f32(8), f32(7), f32(2, 8), f32(2, 8), f32(8), f32(2),
                                 f32(2), Into::Overwrite);
      },
      {"layer_norm_backward", "dbias is (7) F32", "expected (8) F32"}));
  EXPECT_TRUE(error_says(
      [&] {
        ops::layer_norm_backward(f32(2, 8), f32(8), f32(8), f32(2, 8), f32(2, 8), f32(8), f32(3),
                                 f32(2), Into::Overwrite);
      },
      {"layer_norm_backward", "mean is (3) F32", "expected (2) F32"}));
}

TEST_P(Arguments, OfSoftmaxHaveOneShape) {
  EXPECT_TRUE(error_says([&] { ops::softmax(f32(2, 3), f32(3, 2)); },
                         {"softmax", "y is (2, 3)", "expected (3, 2)"}));
  EXPECT_TRUE(error_says([&] { ops::masked_softmax(f32(2, 3), f32(2, 3), 1, {}); },
                         {"masked_softmax", "x", "(2, 3)", "4"}));
  const Tensor scores({1, 1, 2, 3}, DType::F32, device_);
  EXPECT_TRUE(error_says([&] { ops::masked_softmax(scores, scores, 0, {}); },
                         {"masked_softmax", "factor is 0", "more than 0"}));
  EXPECT_TRUE(error_says([&] { ops::softmax_backward(f32(2, 3), f32(2, 3), f32(6)); },
                         {"softmax_backward", "y is (6)", "expected (2, 3)"}));
}

TEST_P(Arguments, OfAttentionDivideIntoHeads) {
  EXPECT_TRUE(
      error_says([&] { ops::causal_attention(f32(1, 4, 8), f32(1, 3, 4), f32(1, 4, 24), 3); },
                 {"causal_attention", "24", "multiple of 3 * heads"}));
  EXPECT_TRUE(
      error_says([&] { ops::causal_attention(f32(1, 4, 8), f32(1, 2, 4), f32(1, 4, 24), 0); },
                 {"causal_attention", "heads is 0", "at least 1"}));
  EXPECT_TRUE(
      error_says([&] { ops::causal_attention(f32(1, 4, 24), f32(1, 2, 4), f32(1, 4, 24), 2); },
                 {"causal_attention", "out is (1, 4, 24)", "expected (1, 4, 8)"}));
  EXPECT_TRUE(
      error_says([&] { ops::causal_attention(f32(1, 4, 8), f32(1, 4, 2), f32(1, 4, 24), 2); },
                 {"causal_attention", "log_sum_exp is (1, 4, 2)", "expected (1, 2, 4)"}));
  EXPECT_TRUE(error_says(
      [&] {
        ops::causal_attention_backward(f32(1, 4, 24), f32(1, 4, 24), f32(1, 4, 24), f32(1, 4, 8),
                                       f32(1, 2, 4), 2);
      },
      {"causal_attention_backward", "dout is (1, 4, 24)", "expected (1, 4, 8)"}));
}

TEST_P(Arguments, OfEmbeddingAreIdsInsideTheTable) {
  const Tensor table = f32(5, 2), out = f32(3, 2);
  for (const std::int32_t wrong : {-1, 5, 1000})
    EXPECT_TRUE(data_error_says(
        [&] { ops::embedding(out, table, ids(0, wrong, 4)); },
        {"embedding: id[1] is " + std::to_string(wrong) + ", expected 0 <= id < 5"}));
  EXPECT_TRUE(
      data_error_says([&] { ops::embedding_backward(table, out, ids(0, 1, 7), Into::Overwrite); },
                      {"embedding_backward: id[2] is 7, expected 0 <= id < 5"}));
  EXPECT_NO_THROW(call_and_wait(device_, [&] { ops::embedding(out, table, ids(0, 1, 4)); }));
  EXPECT_TRUE(error_says([&] { ops::embedding(out, table, ids(0, 1)); },
                         {"embedding", "out is (3, 2)", "expected (2, 2)"}));
  EXPECT_TRUE(error_says([&] { ops::embedding(out, table, f32(3)); },
                         {"embedding", "ids is (3) F32", "I32"}));
}

TEST_P(Arguments, OfTopKAreColumns) {
  const Tensor x = f32(2, 5);
  const auto of = [&](Index N, Index k) {
    const Tensor ids({N, k}, DType::I32, device_);
    ops::top_k(ids, x);
  };
  for (const Index k : {0, 6})
    EXPECT_TRUE(error_says([&] { of(2, k); },
                           {"top_k", "k is " + std::to_string(k), "1 to the columns of x"}));
  EXPECT_TRUE(error_says([&] { of(3, 2); }, {"top_k", "ids is (3, 2) I32", "expected (2, 2) I32"}));
  EXPECT_TRUE(error_says([&] { ops::top_k(f32(2, 2), x); }, {"top_k", "ids is (2, 2) F32", "I32"}));
  EXPECT_TRUE(
      error_says([&] { ops::top_k(ids(1, 2), x); }, {"top_k", "ids is (2) I32", "2 dimensions"}));
}

TEST_P(Arguments, OfTakenColumnsAreIdsInsideTheRow) {
  const Tensor x = f32(2, 5), values = f32(2, 2);
  const auto chosen = [&](std::int32_t third) { return ids(0, -1, third, 4).reshaped({2, 2}); };
  for (const std::int32_t wrong : {-2, 5, 1000}) {
    const std::string found = "id[2] is " + std::to_string(wrong) + ", expected -1 <= id < 5";
    EXPECT_TRUE(data_error_says([&] { ops::take_columns(values, x, chosen(wrong)); },
                                {"take_columns: " + found}));
    EXPECT_TRUE(data_error_says([&] { ops::take_columns_backward(x, values, chosen(wrong)); },
                                {"take_columns_backward: " + found}));
  }
  EXPECT_NO_THROW(call_and_wait(device_, [&] { ops::take_columns(values, x, chosen(3)); }));
  EXPECT_TRUE(error_says([&] { ops::take_columns(f32(2, 3), x, chosen(3)); },
                         {"take_columns", "values is (2, 3)", "expected (2, 2)"}));
  EXPECT_TRUE(error_says([&] { ops::take_columns(values, f32(3, 5), chosen(3)); },
                         {"take_columns", "ids is (2, 2) I32", "expected (3, 2) I32"}));
  EXPECT_TRUE(error_says([&] { ops::take_columns_backward(f32(3, 5), values, chosen(3)); },
                         {"take_columns_backward", "dx is (3, 5)", "expected (2, 5)"}));
  EXPECT_TRUE(error_says([&] { ops::take_columns_backward(bf16(2, 5), values, chosen(3)); },
                         {"take_columns_backward", "dx is (2, 5) BF16", "F32"}));
  EXPECT_TRUE(error_says([&] { ops::take_columns_backward(x, f32(2, 3), chosen(3)); },
                         {"take_columns_backward", "ids is (2, 2) I32", "expected (2, 3) I32"}));
}

TEST_P(Arguments, OfSumsOfRowsHaveOneShape) {
  EXPECT_TRUE(error_says([&] { ops::row_dots(f32(2), f32(2, 3), f32(3, 2)); },
                         {"row_dots", "b is (3, 2)", "expected (2, 3)"}));
  EXPECT_TRUE(error_says([&] { ops::row_dots(f32(3), f32(2, 3), f32(2, 3)); },
                         {"row_dots", "dots is (3) F32", "expected (2) F32"}));
  EXPECT_TRUE(error_says([&] { ops::row_dots(bf16(2), bf16(2, 3), bf16(2, 3)); },
                         {"row_dots", "dots is (2) BF16", "expected (2) F32"}));
  EXPECT_TRUE(error_says([&] { ops::normalize_rows(f32(6), f32(2, 3)); },
                         {"normalize_rows", "y is (6)", "expected (2, 3)"}));
  EXPECT_TRUE(error_says([&] { ops::normalize_rows(f32(6), f32(6)); },
                         {"normalize_rows", "x is (6)", "2 dimensions"}));
  EXPECT_TRUE(
      error_says([&] { ops::normalize_rows_backward(f32(2, 3), f32(2, 3), f32(2, 3), f64(2, 3)); },
                 {"normalize_rows_backward", "x is (2, 3) F64", "expected (2, 3) F32"}));
}

TEST_P(Arguments, OfATablesPartLieInTheWhole) {
  const Tensor table = f32(5, 2), out = f32(3, 2), losses = f32(2), logits = f32(2, 6);
  const ops::TablePart last{.begin = 7, .all = 12};
  for (const std::int32_t wrong : {-1, 12})
    EXPECT_TRUE(data_error_says(
        [&] { ops::embedding(out, table, ids(0, wrong, 4), Into::Overwrite, last); },
        {"embedding: id[1] is " + std::to_string(wrong) + ", expected 0 <= id < 12"}));
  EXPECT_TRUE(data_error_says(
      [&] { ops::embedding_backward(table, out, ids(0, 1, 12), Into::Overwrite, last); },
      {"embedding_backward: id[2] is 12, expected 0 <= id < 12"}));
  EXPECT_TRUE(
      data_error_says([&] { ops::cross_entropy(losses, f32(2), logits, ids(0, 12), 5, last); },
                      {"cross_entropy: target[1] is 12, expected -1 <= target < 12"}));
  EXPECT_TRUE(data_error_says(
      [&] { ops::cross_entropy_backward(logits, logits, losses, ids(0, 12), 5, 1, last); },
      {"cross_entropy_backward: target[1] is 12, expected -1 <= target < 12"}));
  for (const ops::TablePart part : {ops::TablePart{1, 0}, {-1, 12}, {8, 12}}) {
    const std::string begin = "part.begin is " + std::to_string(part.begin);
    EXPECT_TRUE(error_says([&] { ops::embedding(out, table, ids(0, 1, 2), Into::Overwrite, part); },
                           {"embedding", begin, "lie in part.all"}));
    EXPECT_TRUE(error_says([&] { ops::cross_entropy(losses, f32(2), logits, ids(0, 1), 5, part); },
                           {"cross_entropy", begin, "lie in part.all"}));
  }
}

TEST_P(Arguments, OfCrossEntropyAreTargetsAmongTheClasses) {
  const Tensor losses = f32(2), logits = f32(2, 6);
  for (const std::int32_t wrong : {-2, 5, 6})
    EXPECT_TRUE(data_error_says(
        [&] { ops::cross_entropy(losses, f32(2), logits, ids(0, wrong), 5); },
        {"cross_entropy: target[1] is " + std::to_string(wrong) + ", expected -1 <= target < 5"}));
  EXPECT_TRUE(
      data_error_says([&] { ops::cross_entropy_backward(logits, logits, losses, ids(0, 5), 5, 1); },
                      {"cross_entropy_backward: target[1] is 5, expected -1 <= target < 5"}));
  for (const Index classes : {0, 7})
    EXPECT_TRUE(error_says(
        [&] { ops::cross_entropy(losses, f32(2), logits, ids(0, 0), classes); },
        {"cross_entropy", "classes is " + std::to_string(classes), "columns of logits"}));
  EXPECT_TRUE(error_says([&] { ops::cross_entropy(losses, f32(2), logits, ids(0), 6); },
                         {"cross_entropy", "targets is (1)", "expected (2) I32"}));
  EXPECT_TRUE(error_says([&] { ops::cross_entropy(f64(2), f32(2), logits, ids(0, 0), 6); },
                         {"cross_entropy", "losses is (2) F64", "expected (2) F32"}));
}

TEST_P(Arguments, OfSmoothedLabelsAreAShareOfAllClasses) {
  const Tensor losses = f32(2), lse = f32(2), logits = f32(2, 6), targets = ids(0, 1);
  for (const double wrong : {-0.1, 1.0, 2.0}) {
    const std::string found = wrong < 0 ? "smoothing is -0.1" : wrong < 2 ? "is 1," : "is 2,";
    EXPECT_TRUE(error_says([&] { ops::cross_entropy(losses, lse, logits, targets, 6, {}, wrong); },
                           {"cross_entropy", found, "expected 0 <= smoothing < 1"}));
    EXPECT_TRUE(error_says(
        [&] { ops::cross_entropy_backward(logits, logits, lse, targets, 6, 1, {}, wrong); },
        {"cross_entropy_backward", found, "expected 0 <= smoothing < 1"}));
  }
  const ops::TablePart part{.begin = 0, .all = 12};
  EXPECT_TRUE(error_says([&] { ops::cross_entropy(losses, lse, logits, targets, 6, part, 0.1); },
                         {"cross_entropy: smoothing is 0.1, expected 0 with a part"}));
  EXPECT_TRUE(error_says(
      [&] { ops::cross_entropy_backward(logits, logits, lse, targets, 6, 1, part, 0.1); },
      {"cross_entropy_backward: smoothing is 0.1, expected 0 with a part"}));
}

TEST_P(Arguments, OfOptimizersHaveStateForEveryWeight) {
  const ops::AdamWStep adamw{.learning_rate = 0.1};
  const Tensor w = f32(3), m = f32(3), v = f32(3);
  EXPECT_TRUE(error_says([&] { ops::adamw(w, {}, m, v, f32(2), adamw); },
                         {"adamw", "gradient is (2) F32", "3"}));
  EXPECT_TRUE(error_says([&] { ops::adamw(w, {}, f32(4), v, f32(3), adamw); },
                         {"adamw", "m is (4) F32", "3"}));
  EXPECT_TRUE(error_says([&] { ops::adamw(bf16(3), {}, m, v, f32(3), adamw); },
                         {"adamw", "master", "empty"}));
  EXPECT_TRUE(error_says([&] { ops::adamw(w, f32(3), m, v, f32(3), adamw); },
                         {"adamw", "master", "own master"}));
  EXPECT_TRUE(
      error_says([&] { ops::adamw(w, {}, m, v, f32(3), {.learning_rate = 0.1, .step = 0}); },
                 {"adamw", "step is 0", "at least 1"}));
  EXPECT_TRUE(
      error_says([&] { ops::adamw(w, {}, m, v, f32(3), {.learning_rate = 0.1, .beta2 = 1}); },
                 {"adamw", "beta2 is 1", "beta2 < 1"}));
  EXPECT_TRUE(
      error_says([&] { ops::sgd(w, {}, {}, f32(3), {.learning_rate = 0.1, .momentum = 0.9}); },
                 {"sgd", "velocity", "empty"}));
  EXPECT_TRUE(error_says([&] { ops::sgd(w, {}, {}, f64(3), {.learning_rate = 0.1}); },
                         {"sgd", "gradient is (3) F64", "F32"}));
}

}  // namespace
}  // namespace aisc
