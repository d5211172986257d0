// Sizes at which kernels take other ways: rows of every length up to a vocabulary, tables of many
// rows, ids that occur very often; and that all of it has the same bits in every run, which for
// what is only moved or added in the order of the data are those of the CPU.
#include <cmath>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;
using reference::Ids;

class Large : public PerDType {
 protected:
  // The same numbers where the CPU computes.
  Tensor on_cpu(const Tensor& x) {
    Tensor copy(x.shape(), x.dtype(), cpu_);
    cpu_.copy(copy, x);
    return copy;
  }

  CpuDevice cpu_{{.poison = true}};
};
INSTANTIATE_TEST_SUITE_P(Ops, Large, kFloatingTypes, dtype_name);

// Lengths just below and above those that a warp or a block keeps in registers.
TEST_P(Large, LayerNormOfRowsOfEveryLength) {
  for (const Index C : {256, 512, 768, 1024, 1032, 2048, 4096, 4104, 8192, 16384, 16392, 20001}) {
    const Index N = C < 2000 ? 19 : 3;
    const Tensor x = random({N, C}, "x", 3), weight = random({C}, "w"), bias = random({C}, "b");
    const Tensor y = unwritten({N, C}), mean = unwritten_sums({N}), rstd = unwritten_sums({N});
    ops::layer_norm(y, mean, rstd, x, weight, bias, 1e-5);
    const reference::LayerNorm expected =
        reference::layer_norm(to_array(x), to_array(weight), to_array(bias), 1e-5);
    EXPECT_TRUE(all_close(y, expected.y.values, rounded_)) << C;
    EXPECT_TRUE(all_close(rstd, expected.rstd.values, tolerance_of(sums_))) << C;
    const Tensor dy = random({N, C}, "dy"), dx = unwritten({N, C});
    const Tensor dweight = unwritten({C}), dbias = unwritten({C});
    const auto backward = [&](View to) {
      ops::layer_norm_backward(to, dweight, dbias, dy, x, weight, mean, rstd, Into::Overwrite);
    };
    backward(dx);
    const reference::LayerNormGradients gradients = reference::layer_norm_backward(
        to_array(dy), to_array(x), to_array(weight), to_array(mean), to_array(rstd));
    EXPECT_TRUE(all_close(dx, gradients.dx.values, rounded_)) << C;
    EXPECT_TRUE(all_close(dweight, gradients.dweight.values, {rounded_.relative, 4})) << C;
    EXPECT_TRUE(all_close(dbias, gradients.dbias.values, {rounded_.relative, 4})) << C;
    backward(dy);
    EXPECT_TRUE(same_bits(dy, dx)) << C << " in place of dy";
  }
}

TEST_P(Large, SoftmaxOfLongRows) {
  for (const Index C : {1024, 2049, 4096, 8200, 50304}) {
    const Tensor x = random({2, C}, "x", 3), y = unwritten({2, C}), dy = random({2, C}, "dy");
    ops::softmax(y, x);
    EXPECT_TRUE(all_close(y, reference::softmax(to_array(x)).values, rounded_)) << C;
    const Tensor dx = unwritten({2, C});
    ops::softmax_backward(dx, dy, y);
    EXPECT_TRUE(
        all_close(dx, reference::softmax_backward(to_array(dy), to_array(y)).values, rounded_))
        << C;
  }
}

// GPT-2's vocabulary, padded and not.
TEST_P(Large, CrossEntropyOfAVocabulary) {
  for (const Index V : {50304, 50257}) {
    const Index N = 3, classes = 50257;
    const Tensor logits = random({N, V}, "logits", 3), dlogits = unwritten({N, V});
    const Ids ids{50256, 0, 50255};
    const Tensor targets = ids_tensor(ids, device_);
    const Tensor losses = unwritten_sums({N}), log_sum_exp = unwritten_sums({N});
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

TEST_P(Large, ColumnSumsOfManyRows) {
  for (const Index C : {1, 24, 2000}) {
    const Index N = C == 1 ? 40'000 : 1500;
    const Tensor dy = random({N, C}, "dy"), sums = unwritten({C}), again = unwritten({C});
    ops::add_bias_backward(sums, dy, Into::Overwrite);
    const Tolerance tolerance{rounded_.relative, std::sqrt(double(N))};
    EXPECT_TRUE(all_close(sums, reference::add_bias_backward(to_array(dy)).values, tolerance));
    ops::add_bias_backward(again, dy, Into::Overwrite);
    EXPECT_TRUE(same_bits(sums, again)) << C;
  }
}

// Tables whose ids have one, two and three digits of 8 bits; ids that all are the same; every id a
// few times, as positions are.
TEST_P(Large, EmbeddingBackwardHasTheBitsOfTheCpu) {
  struct Sizes {
    Index N, V, ids, C;
  };
  for (const auto& [N, V, below, C] :
       {Sizes{2500, 70'000, 70'000, 1}, Sizes{2500, 300, 3, 40}, Sizes{3000, 1, 1, 9},
        Sizes{1023, 255, 255, 8}, Sizes{1025, 256, 256, 24}, Sizes{4096, 1024, 128, 16}}) {
    const Tensor dout = random({N, C}, "dout"),
                 ids = ids_tensor(random_ids(N, below, "ids"), device_);
    const Tensor host_dout = on_cpu(dout), host_ids = on_cpu(ids);
    for (const DType out_type : {dtype_, sums_}) {
      const Tensor before = random_tensor({V, C}, out_type, device_, "before");
      const Tensor host = on_cpu(before);
      ops::embedding_backward(before, dout, ids, Into::Accumulate);
      ops::embedding_backward(host, host_dout, host_ids, Into::Accumulate);
      EXPECT_TRUE(same_bits(before, host)) << N << " of " << V;
      ops::embedding_backward(before, dout, ids, Into::Overwrite);
      ops::embedding_backward(host, host_dout, host_ids, Into::Overwrite);
      EXPECT_TRUE(same_bits(before, host)) << N << " of " << V;
    }
  }
}

TEST_P(Large, DropoutHasTheBitsOfTheCpu) {
  const Philox random_bits(7, "dropout", 3);
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{1} << 34}) {
    const Tensor x = random({10'001}, "x"), y = unwritten({10'001});
    const Tensor host_x = on_cpu(x), host_y(x.shape(), dtype_, cpu_);
    ops::dropout(y, x, 0.3, random_bits, first);
    ops::dropout(host_y, host_x, 0.3, random_bits, first);
    EXPECT_TRUE(same_bits(y, host_y)) << first;
  }
}

TEST_P(Large, GradientsOfWeightsHaveTheSameBitsInEveryRun) {
  const Index N = 700, C = 264;
  const Tensor x = random({N, C}, "x"), dy = random({N, C}, "dy"), weight = random({C}, "w");
  const Tensor mean = unwritten_sums({N}), rstd = unwritten_sums({N}), y = unwritten({N, C});
  ops::layer_norm(y, mean, rstd, x, weight, weight, 1e-5);
  const Tensor dx = unwritten({N, C}), dweight = unwritten({C}), dbias = unwritten({C});
  const Tensor dx2 = unwritten({N, C}), dweight2 = unwritten({C}), dbias2 = unwritten({C});
  ops::layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, rstd, Into::Overwrite);
  ops::layer_norm_backward(dx2, dweight2, dbias2, dy, x, weight, mean, rstd, Into::Overwrite);
  EXPECT_TRUE(same_bits(dx, dx2));
  EXPECT_TRUE(same_bits(dweight, dweight2));
  EXPECT_TRUE(same_bits(dbias, dbias2));
  EXPECT_EQ(ops::sum_of_squares(x), ops::sum_of_squares(x));
}

}  // namespace
}  // namespace aisc
