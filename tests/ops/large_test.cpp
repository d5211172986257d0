// Sizes at which kernels take other ways: many rows, tables of many rows, ids that occur very
// often; and that all of it has the same bits in every run, which for what is only moved or added
// in the order of the data are those of the CPU. Rows up to a vocabulary: rows_test.cpp,
// tables_test.cpp.
#include <cmath>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;

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

// Routers on both must choose the same. Rounded to quarters many scores are equal; ids repeat.
TEST_P(Large, ChoicesHaveTheBitsOfTheCpu) {
  const Index N = 9, E = 1030, k = 160;
  std::vector<double> scores = to_doubles(random({N, E}, "x"));
  for (double& score : scores) score = std::round(4 * score) / 4;
  const Tensor x = tensor(scores, {N, E}), dvalues = random({N, k}, "dvalues");
  const Tensor chosen({N, k}, DType::I32, device_), host_chosen({N, k}, DType::I32, cpu_);
  const Tensor host_x = on_cpu(x), host_dvalues = on_cpu(dvalues);
  ops::top_k(chosen, x);
  ops::top_k(host_chosen, host_x);
  EXPECT_TRUE(same_bits(chosen, host_chosen));
  const Tensor ids = ids_tensor(random_ids(N * k, 100, "ids"), device_).reshaped({N, k});
  const Tensor host_ids = on_cpu(ids);
  for (const DType out_type : {dtype_, sums_})
    for (const Into into : {Into::Accumulate, Into::Overwrite}) {
      const Tensor dx = random_tensor({N, E}, out_type, device_, "before"), host = on_cpu(dx);
      ops::take_columns_backward(dx, dvalues, ids, into);
      ops::take_columns_backward(host, host_dvalues, host_ids, into);
      EXPECT_TRUE(same_bits(dx, host));
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
