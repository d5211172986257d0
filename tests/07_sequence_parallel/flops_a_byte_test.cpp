// What each tensor that a block keeps costs to make again: by hand, and together the block.
#include "07_sequence_parallel/more/flops_a_byte.h"

#include <gtest/gtest.h>

#include "06_tensor_parallel/parallel_block.h"
#include "06_tensor_parallel/split_step.h"
#include "07_sequence_parallel/stored_attention.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

GptConfig block_of(std::int64_t a, std::int64_t h, std::int64_t s) {
  return {.layers = 3,
          .heads = a,
          .width = h,
          .context = s,
          .vocabulary = 128,
          .dropout = 0.1,
          .dtype = DType::BF16};
}

// b 1, s 4, h 8, a 2: a tensor of s b h elements has 32, one of a s^2 b has 32 as well.
TEST(FlopsAByte, AreThoseByHand) {
  struct {
    double bytes, flops;
  } expected[] = {
      {64, 2.0 * 4 * 32 * 8 + 32 + 32},  // 4 x 32 times 32 x 8, dropout, residual
      {64 + 32, 8 * 32},                 // and mean and rstd of 4 rows
      {192, 2.0 * 4 * 8 * 24},
      {64, 2.0 * 2 * 4 * 4 * 4 + 6 * 32},  // of each head 4 x 4 times 4 x 4, softmax
      {32, 17 * 32},
      {64, 32},
      {64, 2.0 * 2 * 4 * 4 * 4},
      {32, 17 * 32},
      {64, 2.0 * 4 * 8 * 8 + 32 + 32},
      {64 + 32, 8 * 32},
      {256, 2.0 * 4 * 8 * 32},
      {256, 9 * 128},
      {32, 17 * 32},
  };
  const std::vector<KeptTensor> kept = kept_tensors(find_machine("dgx-a100"), block_of(2, 8, 4), 1);
  ASSERT_EQ(kept.size(), std::size(expected));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].bytes, expected[i].bytes) << kept[i].name;
    EXPECT_EQ(kept[i].flops, expected[i].flops) << kept[i].name;
    EXPECT_EQ(kept[i].of_core, i >= 3 && i < 6) << kept[i].name;
    EXPECT_GT(kept[i].seconds, 0) << kept[i].name;
  }
}

// Kept are the bytes of the block's layers, and made are all of its products.
TEST(FlopsAByte, AreOfAllThatABlockKeeps) {
  const std::int64_t b = drawn("samples of the block", 1, 5), a = 4, h = 64;
  const GptConfig config = block_of(a, h, drawn("tokens of the block", 1, 40));
  const StepFigures block =
      run_step(find_machine("dgx-a100"), config,
               {.samples = b,
                .blocks = {.begin = 1, .end = 2, .head = false},
                .parts = [](Communicator& tp) {
                  return tensor_parallel_parts(tp, stored_attention_parts(&tp));
                }});
  double bytes = 0, flops = 0;
  for (const KeptTensor& kept : kept_tensors(find_machine("dgx-a100"), config, b)) {
    bytes += kept.bytes;
    flops += kept.flops;
  }
  EXPECT_EQ(bytes, static_cast<double>(block.layer_bytes.at(0)));
  // Beside the products, an element: softmax and dropout of probabilities; two residuals with
  // dropout, two norms, GELU, two masks. Forward's products are a third of forward's and
  // backward's.
  const std::int64_t others =
      b * config.context * (24 * a * config.context + h * (2 * 2 + 2 * 8 + 4 * 9 + 2 * 17));
  EXPECT_EQ(flops - static_cast<double>(others), block.product_flops / 3);
}

}  // namespace
}  // namespace aisc
