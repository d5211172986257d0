// Views may begin anywhere: what operations give for tensors that begin one element after an
// address that is good for long accesses, at counts around the ends of those. What lies beside the
// outputs is not touched.
#include <algorithm>
#include <cmath>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;
using reference::Ids;

constexpr Index kSliceCounts[] = {1, 7, 15, 16, 17, 256, 1000};
constexpr Index kSliceColumns[] = {1, 8, 33, 64, 256};

class Slices : public PerDType {
 protected:
  Between out(const Shape& shape) { return Between(shape, dtype_, device_); }
  Between sums(const Shape& shape) { return Between(shape, sums_, device_); }
  Between in(const Shape& shape, std::string_view name, double scale = 1.0) {
    return Between(random(shape, name, scale));
  }
  const Tolerance order_one_{rounded_.relative, 1.0};
};
INSTANTIATE_TEST_SUITE_P(Ops, Slices, kFloatingTypes, dtype_name);

TEST_P(Slices, OfElementwiseOperations) {
  for (const Index n : kSliceCounts) {
    const Between a = in({n}, "a", 2), b = in({n}, "b", 2), y = out({n});
    const Array left = to_array(a), right = to_array(b);
    ops::add(y, a, b);
    EXPECT_TRUE(all_close(y, reference::add(left, right).values, order_one_)) << n;
    ops::scale(y, a, 0.7);
    EXPECT_TRUE(all_close(y, reference::scale(left, 0.7).values, order_one_)) << n;
    ops::gelu(y, a);
    EXPECT_TRUE(all_close(y, reference::gelu(left).values, order_one_)) << n;
    ops::gelu_backward(y, a, b);
    EXPECT_TRUE(all_close(y, reference::gelu_backward(left, right).values, order_one_)) << n;
    ops::sigmoid(y, a);
    Array sigmoid = left;
    for (double& value : sigmoid.values) value = 1 / (1 + std::exp(-value));
    EXPECT_TRUE(all_close(y, sigmoid.values, order_one_)) << n;
    ops::cast(y, a);
    EXPECT_TRUE(same_bits(y, a)) << n;
    const Philox mask(7, "mask");
    ops::dropout(y, a, 0.3, mask, 5);
    EXPECT_TRUE(all_close(y, reference::dropout(left, 0.3, mask, 5).values, rounded_)) << n;
  }
}

TEST_P(Slices, OfRowsAndBias) {
  for (const Index C : kSliceColumns) {
    const Index N = 70;
    const Between x = in({N, C}, "x"), bias = in({C}, "bias"), y = out({N, C}), sum = out({C});
    ops::add_bias(y, x, bias);
    EXPECT_TRUE(all_close(y, reference::add_bias(to_array(x), to_array(bias)).values, rounded_));
    ops::add_bias_backward(sum, x, Into::Overwrite);
    const Tolerance of_sums{rounded_.relative, std::sqrt(double(N))};
    EXPECT_TRUE(all_close(sum, reference::add_bias_backward(to_array(x)).values, of_sums));
    ops::softmax(y, x);
    EXPECT_TRUE(all_close(y, reference::softmax(to_array(x)).values, rounded_)) << C;
    const Between dx = out({N, C});
    ops::softmax_backward(dx, x, y);
    EXPECT_TRUE(all_close(dx, reference::softmax_backward(to_array(x), to_array(y)).values,
                          {rounded_.relative, 1.0 / double(C)}))
        << C;
  }
}

// Against the same of whole tensors, to the bit.
TEST_P(Slices, OfChoicesAndSums) {
  for (const Index C : kSliceColumns) {
    const Index N = 70, k = std::min<Index>(C, 3);
    const Tensor a = random({N, C}, "a"), b = random({N, C}, "b"), whole = unwritten({N, C});
    const Between x(a), dy(b), y = out({N, C}), values = out({N, k}), dots = sums({N});
    const Tensor ids({N, k}, DType::I32, device_), chosen({N, k}, DType::I32, device_);
    const Tensor taken = unwritten({N, k}), sum = unwritten_sums({N});
    ops::top_k(ids, a);
    ops::top_k(chosen, x);
    EXPECT_TRUE(same_bits(chosen, ids)) << C;
    ops::take_columns(taken, a, ids);
    ops::take_columns(values, x, ids);
    EXPECT_TRUE(same_bits(values, taken)) << C;
    ops::take_columns_backward(whole, taken, ids);
    ops::take_columns_backward(y, values, ids);
    EXPECT_TRUE(same_bits(y, whole)) << C;
    ops::row_dots(sum, a, b);
    ops::row_dots(dots, x, dy);
    EXPECT_TRUE(same_bits(dots, sum)) << C;
    ops::normalize_rows(whole, a);
    ops::normalize_rows(y, x);
    EXPECT_TRUE(same_bits(y, whole)) << C;
    const Between dx = out({N, C});
    const Tensor all = unwritten({N, C});
    ops::normalize_rows_backward(all, b, whole, a);
    ops::normalize_rows_backward(dx, dy, y, x);
    EXPECT_TRUE(same_bits(dx, all)) << C;
  }
}

TEST_P(Slices, OfLayerNorm) {
  for (const Index C : kSliceColumns) {
    const Index N = 70;
    const Between x = in({N, C}, "x", 3), weight = in({C}, "weight"), bias = in({C}, "bias");
    const Between y = out({N, C}), mean = sums({N}), rstd = sums({N});
    ops::layer_norm(y, mean, rstd, x, weight, bias, 1e-5);
    const reference::LayerNorm expected =
        reference::layer_norm(to_array(x), to_array(weight), to_array(bias), 1e-5);
    EXPECT_TRUE(all_close(y, expected.y.values, rounded_)) << C;
    EXPECT_TRUE(all_close(rstd, expected.rstd.values, tolerance_of(sums_))) << C;
    const Between dy = in({N, C}, "dy"), dx = out({N, C}), dweight = out({C}), dbias = out({C});
    ops::layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, rstd, Into::Overwrite);
    const reference::LayerNormGradients gradients = reference::layer_norm_backward(
        to_array(dy), to_array(x), to_array(weight), to_array(mean), to_array(rstd));
    const double size = std::sqrt(double(N)), of_one = C == 1 ? 1 / std::sqrt(1e-5) : 0;
    EXPECT_TRUE(all_close(dx, gradients.dx.values, {rounded_.relative, of_one})) << C;
    EXPECT_TRUE(all_close(dweight, gradients.dweight.values, {rounded_.relative, size})) << C;
    EXPECT_TRUE(all_close(dbias, gradients.dbias.values, {rounded_.relative, size})) << C;
  }
}

TEST_P(Slices, OfTables) {
  for (const Index C : kSliceColumns) {
    const Index N = 70, V = 11;
    const Ids ids = random_ids(N, V, "ids");
    const Tensor id_tensor = ids_tensor(ids, device_);
    const Between table = in({V, C}, "table"), rows = out({N, C}), dout = in({N, C}, "dout");
    ops::embedding(rows, table, id_tensor);
    EXPECT_EQ(to_doubles(rows), reference::embedding(to_array(table), ids).values);
    const Between dtable = out({V, C});
    ops::embedding_backward(dtable, dout, id_tensor, Into::Overwrite);
    EXPECT_TRUE(
        all_close(dtable, reference::embedding_backward(to_array(dout), ids, V).values, rounded_));
  }
}

TEST_P(Slices, OfCrossEntropy) {
  for (const Index V : {8, 33, 256}) {
    const Index N = 9, classes = V - 3;
    const Ids ids = random_ids(N, classes, "targets");
    const Tensor targets = ids_tensor(ids, device_);
    const Between logits = in({N, V}, "logits", 3), losses = sums({N}), log_sum_exp = sums({N});
    const Between dlogits = out({N, V});
    ops::cross_entropy(losses, log_sum_exp, logits, targets, classes);
    const reference::CrossEntropy expected =
        reference::cross_entropy(to_array(logits), ids, classes);
    EXPECT_TRUE(all_close(losses, expected.losses.values, tolerance_of(sums_))) << V;
    ops::cross_entropy_backward(dlogits, logits, log_sum_exp, targets, classes, 0.125);
    EXPECT_TRUE(all_close(
        dlogits, reference::cross_entropy_backward(to_array(logits), ids, classes, 0.125).values,
        rounded_))
        << V;
  }
}

TEST_P(Slices, OfOptimizers) {
  for (const Index n : kSliceCounts) {
    const Between weight = in({n}, "weight"), gradient = in({n}, "gradient");
    const Between master(random_tensor({n}, sums_, device_, "weight"));
    const Between m(random_tensor({n}, sums_, device_, "m"));
    const Between v(random_tensor({n}, sums_, device_, "v"));
    ops::scale(v, v, 0);  // it has a square root
    EXPECT_NEAR(ops::sum_of_squares(gradient), reference::sum_of_squares(to_array(gradient)),
                1e-6 * double(n));
    const View own = is_short() ? master.view() : View();
    const View full = is_short() ? master.view() : weight.view();
    Array w = to_array(full), first = to_array(m), second = to_array(v);
    const ops::AdamWStep adamw{.learning_rate = 0.01, .weight_decay = 0.1};
    ops::adamw(weight, own, m, v, gradient, adamw);
    reference::adamw(w, first, second, to_array(gradient), adamw);
    // Where m is large and the one square small, the step is up to 0.01 * 60 of the size of m.
    EXPECT_TRUE(all_close(full, w.values, tolerance_of(sums_, 4))) << n;
    EXPECT_TRUE(all_close(m, first.values, tolerance_of(sums_))) << n;
    const ops::SgdStep sgd{.learning_rate = 0.1, .momentum = 0.9};
    w = to_array(full);
    first = to_array(m);
    ops::sgd(weight, own, m, gradient, sgd);
    reference::sgd(w, first, to_array(gradient), sgd);
    EXPECT_TRUE(all_close(full, w.values, tolerance_of(sums_))) << n;
  }
}

TEST_P(Slices, OfPermutations) {
  const Between x = in({3, 16, 40}, "x"), middle = out({16, 3, 40}), last = out({3, 40, 16});
  ops::permute(middle, x, {1, 0, 2});
  EXPECT_EQ(to_doubles(middle), reference::permute(to_array(x), {1, 0, 2, 3}).values);
  ops::permute(last, x, {0, 2, 1});
  EXPECT_EQ(to_doubles(last), reference::permute(to_array(x), {0, 2, 1, 3}).values);
}

}  // namespace
}  // namespace aisc
