// Every byte that a layer keeps, against Korthikanti et al. (arXiv 2205.05198, table 2), and what
// recomputation of the core costs in FLOPs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "06_tensor_parallel/parallel_block.h"
#include "06_tensor_parallel/split_step.h"
#include "07_sequence_parallel/sequence_block.h"
#include "07_sequence_parallel/stored_attention.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

enum class Split { Tensor, TensorAndSequence };

// A block in the middle, on one of t ranks.
StepFigures layer_of(const GptConfig& config, std::int64_t samples, int t, Split split,
                     const char* recompute) {
  return run_step(find_machine("selene"), config,
                  {.ranks = t,
                   .samples = samples,
                   .blocks = {.begin = 1, .end = 2, .head = false},
                   .recompute = Recompute::parse(recompute),
                   .parts = [split](Communicator& tp) {
                     GptParts stored = stored_attention_parts(&tp);
                     return split == Split::Tensor ? tensor_parallel_parts(tp, std::move(stored))
                                                   : sequence_parallel_parts(tp, std::move(stored));
                   }});
}

GptConfig layers_of(std::int64_t a, std::int64_t h, std::int64_t s) {
  return {.layers = 3,
          .heads = a,
          .width = h,
          .context = s,
          .vocabulary = 128,
          .dropout = 0.1,
          .dtype = DType::BF16};
}

// All six rows, exactly; norms keep mean and rstd beside them, 16 s b, which the paper leaves out.
TEST(ActivationBytes, AreTheTableOfKorthikantiEtAl) {
  const std::int64_t b = drawn("samples of the table", 1, 5), a = 8, h = 64;
  const std::int64_t s = 8 * drawn("tokens of the table", 1, 9);
  const std::int64_t sbh = s * b * h, scores = 5 * a * s * s * b, statistics = 16 * s * b;
  const auto kept = [&](int t, Split split, const char* recompute) {
    return layer_of(layers_of(a, h, s), b, t, split, recompute).layer_bytes.at(0);
  };
  EXPECT_EQ(kept(1, Split::Tensor, "none"), 34 * sbh + scores + statistics) << "none";
  for (const int t : {1, 2, 4, 8}) {
    const std::string ranks_are = fmt::format("t {}, s {}, b {}", t, s, b);
    EXPECT_EQ(kept(t, Split::Tensor, "none"), 10 * sbh + (24 * sbh + scores) / t + statistics)
        << "tensor parallel, " << ranks_are;
    EXPECT_EQ(kept(t, Split::TensorAndSequence, "none"), (34 * sbh + scores + statistics) / t)
        << "and sequence parallel, " << ranks_are;
    EXPECT_EQ(kept(t, Split::Tensor, "core"), 10 * sbh + 24 * sbh / t + statistics)
        << "tensor parallel, selective, " << ranks_are;
    EXPECT_EQ(kept(t, Split::TensorAndSequence, "core"), (34 * sbh + statistics) / t)
        << "and sequence parallel, selective, " << ranks_are;
    EXPECT_EQ(kept(t, Split::Tensor, "block"), 2 * sbh) << "full, " << ranks_are;
    EXPECT_EQ(kept(t, Split::TensorAndSequence, "block"), 2 * sbh / t)
        << "full and sequence parallel, " << ranks_are;
  }
}

// Of what a layer keeps selective recomputation saves 70 % for GPT-3's shape and 65 % for MT-NLG's.
// By the charges of the operations it repeats 4 b s^2 h FLOPs, the core's two products, of 72 b s
// h^2 (1 + s/(6 h)); the paper counts three times as much, s/(6 h) / (1 + s/(6 h)): 2.7 and 1.6 %.
TEST(ActivationBytes, OfSelectiveRecomputationAreSavedForFewFlops) {
  struct {
    std::int64_t a, h;
    double saved, charged, papers;
  } shapes[] = {{96, 12288, 0.70, 0.0090, 0.027}, {128, 20480, 0.65, 0.0055, 0.016}};
  for (const auto& [a, h, saved, charged, papers] : shapes) {
    const GptConfig config = layers_of(a, h, 2048);
    const auto step = [&](const char* recompute) {
      return layer_of(config, 1, 8, Split::TensorAndSequence, recompute);
    };
    const StepFigures all = step("none"), selective = step("core");
    const auto bytes = [](const StepFigures& figures) {
      return static_cast<double>(figures.layer_bytes.at(0));
    };
    EXPECT_NEAR(1 - bytes(selective) / bytes(all), saved, 0.005);
    EXPECT_NEAR(selective.product_flops / all.product_flops - 1, charged, 0.00005);
    const double core = 2048.0 / (6 * static_cast<double>(h));
    EXPECT_NEAR(3 * (selective.product_flops / all.product_flops - 1), core / (1 + core), 1e-12);
    EXPECT_NEAR(core / (1 + core), papers, 0.0005);
  }
}

}  // namespace
}  // namespace aisc
