// Every backward pass against central differences of its forward pass, in F64. The loss is the sum
// of the outputs, each times a fixed random weight, which are then the gradient dy of the outputs.
#include "tests/support/gradient_check.h"

#include "common/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ops::Into;
using ops::Transpose;

class OpGradients : public PerDevice {
 protected:
  Tensor random(const Shape& shape, const char* name) {
    return random_tensor(shape, DType::F64, device_, name);
  }
  Tensor unwritten(const Shape& shape) { return Tensor(shape, DType::F64, device_); }
  // The loss after `forward`, which writes y.
  template <class Forward>
  static auto loss_of(const Tensor& y, const Tensor& dy, Forward forward) {
    return [&y, &dy, forward] {
      forward();
      return dot(y, dy);
    };
  }
};
INSTANTIATE_TEST_SUITE_P(On, OpGradients, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

// The three products of a linear layer: y = x W^T + b, dx = dy W, dW = dy^T x.
TEST_P(OpGradients, OfALinearLayer) {
  const Tensor x = random({5, 7}, "x"), weight = random({6, 7}, "w"), bias = random({6}, "b");
  const Tensor dy = random({5, 6}, "dy"), y = unwritten({5, 6});
  const Tensor dx = unwritten({5, 7}), dweight = unwritten({6, 7}), dbias = unwritten({6});
  ops::matmul(dx, dy, weight);
  ops::matmul(dweight, dy, x, {.transpose = Transpose::First});
  ops::add_bias_backward(dbias, dy, Into::Overwrite);
  const auto loss = loss_of(
      y, dy, [&] { ops::matmul(y, x, weight, {.transpose = Transpose::Second, .bias = bias}); });
  EXPECT_TRUE(check_gradient(loss, x, dx));
  EXPECT_TRUE(check_gradient(loss, weight, dweight));
  EXPECT_TRUE(check_gradient(loss, bias, dbias));
}

TEST_P(OpGradients, OfBatchedProducts) {
  const Tensor a = random({3, 4, 5}, "a"), b = random({3, 5, 6}, "b"), dy = random({3, 4, 6}, "dy");
  const Tensor y = unwritten({3, 4, 6}), da = unwritten({3, 4, 5}), db = unwritten({3, 5, 6});
  ops::matmul(da, dy, b, {.transpose = Transpose::Second, .alpha = 0.5});
  ops::matmul(db, a, dy, {.transpose = Transpose::First, .alpha = 0.5});
  const auto loss = loss_of(y, dy, [&] { ops::matmul(y, a, b, {.alpha = 0.5}); });
  EXPECT_TRUE(check_gradient(loss, a, da));
  EXPECT_TRUE(check_gradient(loss, b, db));
}

TEST_P(OpGradients, OfReluAndGelu) {
  const Tensor x = random({60}, "x"), dy = random({60}, "dy"), dx = unwritten({60});
  const Tensor y = unwritten({60});
  ops::gelu_backward(dx, dy, x);
  const auto gelu_loss = loss_of(y, dy, [&] { ops::gelu(y, x); });
  EXPECT_TRUE(check_gradient(gelu_loss, x, dx));
  ops::gelu_backward(dx, dy, x, ops::Gelu::Erf);
  const auto erf_loss = loss_of(y, dy, [&] { ops::gelu(y, x, ops::Gelu::Erf); });
  EXPECT_TRUE(check_gradient(erf_loss, x, dx));
  ops::relu_backward(dx, dy, x);
  const auto relu_loss = loss_of(y, dy, [&] { ops::relu(y, x); });
  EXPECT_TRUE(check_gradient(relu_loss, x, dx));
}

TEST_P(OpGradients, OfPermuteAreTheInverseOrder) {
  const Tensor x = random({2, 3, 4, 5}, "x"), dy = random({5, 3, 2, 4}, "dy");
  const Tensor y = unwritten({5, 3, 2, 4}), dx = unwritten({2, 3, 4, 5});
  ops::permute(dx, dy, {2, 1, 3, 0});
  const auto loss = loss_of(y, dy, [&] { ops::permute(y, x, {3, 1, 0, 2}); });
  EXPECT_TRUE(check_gradient(loss, x, dx));
}

TEST_P(OpGradients, OfDropoutAreTheSameCall) {
  const Philox mask(7, "mask", 3);
  const Tensor x = random({50}, "x"), dy = random({50}, "dy"), dx = unwritten({50});
  const Tensor y = unwritten({50});
  ops::dropout(dx, dy, 0.4, mask, 11);
  const auto loss = loss_of(y, dy, [&] { ops::dropout(y, x, 0.4, mask, 11); });
  EXPECT_TRUE(check_gradient(loss, x, dx));
}

TEST_P(OpGradients, OfLayerNorm) {
  const std::int64_t N = 3, C = 9;
  const Tensor x = random({N, C}, "x"), weight = random({C}, "w"), bias = random({C}, "b");
  const Tensor dy = random({N, C}, "dy"), y = unwritten({N, C}), mean = unwritten({N});
  const Tensor rstd = unwritten({N}), dx = unwritten({N, C}), dweight = unwritten({C});
  const Tensor dbias = unwritten({C});
  const auto loss = loss_of(y, dy, [&] { ops::layer_norm(y, mean, rstd, x, weight, bias, 1e-5); });
  loss();
  ops::layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, rstd, Into::Overwrite);
  EXPECT_TRUE(check_gradient(loss, x, dx));
  EXPECT_TRUE(check_gradient(loss, weight, dweight));
  EXPECT_TRUE(check_gradient(loss, bias, dbias));
}

TEST_P(OpGradients, OfSoftmax) {
  const Tensor x = random({4, 7}, "x"), dy = random({4, 7}, "dy");
  const Tensor y = unwritten({4, 7}), dx = unwritten({4, 7});
  const auto loss = loss_of(y, dy, [&] { ops::softmax(y, x); });
  loss();
  ops::softmax_backward(dx, dy, y);
  EXPECT_TRUE(check_gradient(loss, x, dx));
}

TEST_P(OpGradients, OfSigmoid) {
  const Tensor x = random({40}, "x"), dy = random({40}, "dy");
  const Tensor y = unwritten({40}), dx = unwritten({40});
  const auto loss = loss_of(y, dy, [&] { ops::sigmoid(y, x); });
  loss();
  ops::sigmoid_backward(dx, dy, y);
  EXPECT_TRUE(check_gradient(loss, x, dx));
}

TEST_P(OpGradients, OfNormalizedRows) {
  const Tensor x = random({4, 7}, "x"), dy = random({4, 7}, "dy");
  const Tensor y = unwritten({4, 7}), dx = unwritten({4, 7});
  ops::sigmoid(x, x);  // sums far from 0
  const auto loss = loss_of(y, dy, [&] { ops::normalize_rows(y, x); });
  loss();
  ops::normalize_rows_backward(dx, dy, y, x);
  EXPECT_TRUE(check_gradient(loss, x, dx));
}

TEST_P(OpGradients, OfTheFactorsOfRowsAreDots) {
  const Tensor x = random({5, 6}, "x"), factors = random({5}, "factors"), dy = random({5, 6}, "dy");
  const Tensor y = unwritten({5, 6}), dfactors = unwritten({5});
  ops::row_dots(dfactors, dy, x);
  const auto loss = loss_of(y, dy, [&] { ops::scale_rows(y, x, factors); });
  EXPECT_TRUE(check_gradient(loss, factors, dfactors));
}

// Some columns are taken twice, some never; of -1 nothing is.
TEST_P(OpGradients, OfColumnsThatAreTaken) {
  const Tensor x = random({3, 5}, "x"), dvalues = random({3, 3}, "dvalues");
  const Tensor values = unwritten({3, 3}), dx = unwritten({3, 5});
  const Tensor ids = ids_tensor({4, 0, 4, 2, -1, 1, 3, 3, 3}, device_).reshaped({3, 3});
  ops::take_columns_backward(dx, dvalues, ids);
  const auto loss = loss_of(values, dvalues, [&] { ops::take_columns(values, x, ids); });
  EXPECT_TRUE(check_gradient(loss, x, dx));
}

TEST_P(OpGradients, OfAttention) {
  struct Sizes {
    std::int64_t B, T, H, D;
  };
  for (const auto& [B, T, H, D] : {Sizes{2, 5, 2, 3}, Sizes{1, 67, 1, 2}}) {
    const Tensor qkv = random({B, T, H * 3 * D}, "qkv"), dout = random({B, T, H * D}, "dout");
    const Tensor out = unwritten({B, T, H * D}), log_sum_exp = unwritten({B, H, T});
    const Tensor dqkv = unwritten(qkv.shape());
    const auto loss =
        loss_of(out, dout, [&, heads = H] { ops::causal_attention(out, log_sum_exp, qkv, heads); });
    loss();
    ops::causal_attention_backward(dqkv, dout, qkv, out, log_sum_exp, H);
    EXPECT_TRUE(check_gradient(loss, qkv, dqkv, {.samples = 200}));
  }
}

TEST_P(OpGradients, OfEmbedding) {
  const Tensor table = random({6, 4}, "table"), dout = random({9, 4}, "dout");
  const Tensor out = unwritten({9, 4}), dtable = unwritten({6, 4});
  const Tensor ids = ids_tensor({5, 0, 3, 3, 1, 0, 0, 2, 5}, device_);
  ops::embedding_backward(dtable, dout, ids, Into::Overwrite);
  const auto loss = loss_of(out, dout, [&] { ops::embedding(out, table, ids); });
  EXPECT_TRUE(check_gradient(loss, table, dtable));
}

// A mean over four rows, one of which has no target; two columns are padding.
TEST_P(OpGradients, OfCrossEntropy) {
  const Tensor logits = random({4, 11}, "logits"), dlogits = unwritten({4, 11});
  const Tensor targets = ids_tensor({3, -1, 0, 8}, device_);
  const Tensor losses = unwritten({4}), log_sum_exp = unwritten({4});
  for (const double smoothing : {0.0, 0.1, 0.75}) {
    const auto loss = [&] {
      ops::cross_entropy(losses, log_sum_exp, logits, targets, 9, {}, smoothing);
      return dot(losses, from_doubles({0.25, 0.25, 0.25, 0.25}, {4}, DType::F64, device_));
    };
    loss();
    ops::cross_entropy_backward(dlogits, logits, log_sum_exp, targets, 9, 0.25, {}, smoothing);
    EXPECT_TRUE(check_gradient(loss, logits, dlogits)) << "smoothing " << smoothing;
  }
}

}  // namespace
}  // namespace aisc
