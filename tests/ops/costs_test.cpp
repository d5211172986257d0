// What operations say that they cost, against counts by hand.
#include "common/ops/costs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/tensors.h"

namespace aisc {
namespace {

class CostsTest : public ::testing::Test {
 protected:
  Tensor tensor(const Shape& shape, DType dtype = DType::F32) {
    return Tensor::zeros(shape, dtype, device_);
  }
  // Of the last operation that is run.
  template <class Call>
  OpCost cost_of(Call&& call) {
    OpCost cost;
    int told = 0;
    device_.listen([&](const OpCost& c) { cost = c, ++told; });
    call();
    device_.listen(nullptr);
    EXPECT_EQ(told, 1) << "each operation says it once";
    return cost;
  }

  CpuDevice device_;
};

void expect(const OpCost& cost, const std::string& operation, double flops, double bytes,
            bool product = false) {
  EXPECT_EQ(cost.operation, operation);
  EXPECT_EQ(cost.flops, flops) << operation;
  EXPECT_EQ(cost.bytes, bytes) << operation;
  EXPECT_EQ(cost.product, product) << operation;
}

// (3, 5) = (3, 7) (7, 5): 2 * 105 FLOPs; 15 + 21 + 35 numbers.
TEST_F(CostsTest, OfProducts) {
  const Tensor a = tensor({3, 7}), b = tensor({7, 5}), out = tensor({3, 5}), z = tensor({3, 5});
  expect(cost_of([&] { ops::matmul(out, a, b); }), "matmul", 210, 4 * 71, true);
  expect(cost_of([&] { ops::matmul(out, a, b, {.into = ops::Into::Accumulate}); }), "matmul", 210,
         4 * 86, true);
  expect(cost_of([&] { ops::matmul(out, a, b, {.before_gelu = z}); }), "matmul", 210, 4 * 86, true);
  const Tensor at = tensor({7, 3});
  expect(cost_of([&] { ops::matmul(out, at, b, {.transpose = ops::Transpose::First}); }), "matmul",
         210, 4 * 71, true);
  const Tensor many = tensor({2, 3, 7}), right = tensor({2, 7, 5}), all = tensor({2, 3, 5});
  expect(cost_of([&] { ops::matmul(all, many, right); }), "matmul", 420, 4 * 142, true);
}

TEST_F(CostsTest, OfRowsAndElements) {
  const Tensor x = tensor({3, 5}), y = tensor({3, 5}), w = tensor({5}), b = tensor({5});
  const Tensor mean = tensor({3}), rstd = tensor({3});
  expect(cost_of([&] { ops::add(y, y, x); }), "add", 15, 4 * 45);
  expect(cost_of([&] { ops::gelu(y, x); }), "gelu", 9 * 15, 4 * 30);
  expect(cost_of([&] { ops::gelu(y, x, ops::Gelu::Erf); }), "gelu", 5 * 15, 4 * 30);
  expect(cost_of([&] { ops::gelu_backward(y, y, x); }), "gelu_backward", 17 * 15, 4 * 45);
  expect(cost_of([&] { ops::gelu_backward(y, y, x, ops::Gelu::Erf); }), "gelu_backward", 11 * 15,
         4 * 45);
  expect(cost_of([&] { ops::layer_norm(y, mean, rstd, x, w, b, 1e-5); }), "layer_norm", 8 * 15,
         4 * (30 + 10 + 6));
  const Tensor mask = tensor({15}, DType::U8), scores = tensor({1, 1, 3, 5});
  const Philox random(1, "x", 0);
  expect(cost_of([&] { ops::dropout(y, x, 0.1, random, 0); }), "dropout", 17 * 15, 4 * 30);
  expect(cost_of([&] { ops::dropout(y, x, 0.1, random, 0, mask); }), "dropout", 17 * 15,
         4 * 30 + 15);
  expect(cost_of([&] { ops::dropout_backward(y, x, mask, 0.1); }), "dropout_backward", 15,
         4 * 30 + 15);
  expect(cost_of([&] { ops::masked_softmax(scores, scores, 0.5, {}); }), "masked_softmax", 6 * 15,
         4 * 30);
  expect(cost_of([&] { ops::sum_of_squares(x); }), "sum_of_squares", 30, 4 * 15);
  expect(cost_of([&] { ops::fill(x, 1); }), "fill", 0, 4 * 15);
  expect(cost_of([&] { device_.zero(x); }), "zero", 0, 4 * 15);
}

// T 4, C 6 (two heads), B 2: scores and weighted values, 2 * 2 * T^2 * C a sample.
TEST_F(CostsTest, OfAttentionCountsWholeMatricesOfScores) {
  const Tensor qkv = tensor({2, 4, 18}), out = tensor({2, 4, 6}), lse = tensor({2, 2, 4});
  const Tensor dqkv = tensor({2, 4, 18});
  expect(cost_of([&] { ops::causal_attention(out, lse, qkv, 2); }), "causal_attention",
         2 * 4 * 16 * 6, 4 * (48 + 16 + 144), true);
  expect(cost_of([&] { ops::causal_attention_backward(dqkv, out, qkv, out, lse, 2); }),
         "causal_attention_backward", 2 * 8 * 16 * 6, 4 * (144 + 48 + 144 + 48 + 16), true);
  // One token after 3 others: it sees 4, keys and values of which are read.
  const Tensor one = tensor({2, 1, 18}), cache = tensor({2, 4, 5, 3}), first = tensor({2, 1, 6});
  expect(cost_of([&] { ops::cached_attention(first, one, cache, 2, 3); }), "cached_attention",
         2 * 4 * 4 * 6, 4 * ((12 + 36) / 2.0 + 4 * 24), true);
}

TEST_F(CostsTest, OfTablesAndOptimizers) {
  const Tensor table = tensor({10, 4}), out = tensor({3, 4});
  const Tensor ids = Tensor::zeros({3}, DType::I32, device_);
  expect(cost_of([&] { ops::embedding(out, table, ids); }), "embedding", 0, 4 * (2 * 12 + 3));
  expect(cost_of([&] { ops::embedding_backward(table, out, ids, ops::Into::Accumulate); }),
         "embedding_backward", 12, 4 * (12 + 3 + 2 * 12));
  const Tensor losses = tensor({3}), lse = tensor({3});
  const auto forward = [&](double smoothing) {
    return [&, smoothing] { ops::cross_entropy(losses, lse, out, ids, 4, {}, smoothing); };
  };
  const auto backward = [&](double smoothing) {
    return [&, smoothing] { ops::cross_entropy_backward(out, out, lse, ids, 4, 1, {}, smoothing); };
  };
  expect(cost_of(forward(0)), "cross_entropy", 4 * 12, 4 * (12 + 9));
  expect(cost_of(forward(0.1)), "cross_entropy", 5 * 12, 4 * (12 + 9));
  expect(cost_of(backward(0)), "cross_entropy_backward", 3 * 12, 4 * (24 + 6));
  expect(cost_of(backward(0.1)), "cross_entropy_backward", 4 * 12, 4 * (24 + 6));
  const Tensor w = tensor({8}), m = tensor({8}), v = tensor({8}), g = tensor({8});
  expect(cost_of([&] { ops::adamw(w, {}, m, v, g, {.learning_rate = 1}); }), "adamw", 17 * 8,
         4 * 8 * 7);
  const Tensor shorter = tensor({8}, DType::BF16), gradient = tensor({8}, DType::BF16);
  expect(cost_of([&] { ops::adamw(shorter, w, m, v, gradient, {.learning_rate = 1}); }), "adamw",
         17 * 8, 8 * (2 + 2 + 4 * 6));
}

// Two of five columns of three rows.
TEST_F(CostsTest, OfChoices) {
  const Tensor x = tensor({3, 5}), y = tensor({3, 5}), dots = tensor({3}), values = tensor({3, 2});
  const Tensor ids = Tensor::zeros({3, 2}, DType::I32, device_), dx = tensor({3, 5});
  expect(cost_of([&] { ops::sigmoid(y, x); }), "sigmoid", 3 * 15, 4 * 30);
  expect(cost_of([&] { ops::sigmoid_backward(y, x, y); }), "sigmoid_backward", 3 * 15, 4 * 45);
  expect(cost_of([&] { ops::row_dots(dots, x, y); }), "row_dots", 2 * 15, 4 * 33);
  expect(cost_of([&] { ops::normalize_rows(y, x); }), "normalize_rows", 2 * 15, 4 * 30);
  expect(cost_of([&] { ops::normalize_rows_backward(dx, x, y, x); }), "normalize_rows_backward",
         5 * 15, 4 * 60);
  expect(cost_of([&] { ops::top_k(ids, x); }), "top_k", 15, 4 * (15 + 6));
  expect(cost_of([&] { ops::take_columns(values, x, ids); }), "take_columns", 0, 4 * (2 * 6 + 6));
  expect(cost_of([&] { ops::take_columns_backward(dx, values, ids); }), "take_columns_backward", 6,
         4 * (6 + 6 + 15));
  expect(cost_of([&] { ops::take_columns_backward(dx, values, ids, ops::Into::Accumulate); }),
         "take_columns_backward", 6, 4 * (6 + 6 + 2 * 6));
}

TEST_F(CostsTest, AreNotCountedWhereNobodyListens) {
  EXPECT_FALSE(device_.wants_costs());
  device_.listen([](const OpCost&) {});
  EXPECT_TRUE(device_.wants_costs());
  device_.listen(nullptr);
  EXPECT_FALSE(device_.wants_costs());
}

}  // namespace
}  // namespace aisc
