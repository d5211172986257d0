// What a BERT would put where [MASK] stands: the model's own probabilities, and what cannot be
// filled.
#include "12_encoders/more/fill_mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "12_encoders/bert.h"
#include "12_encoders/masked_words.h"
#include "common/nn/driver.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

WordPiece fillable_pieces() {
  return WordPiece::from_vocab(
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n##a\n##b\n##c\ne\n");
}

TEST(FillMask, EncodesATextAroundItsMasks) {
  const WordPiece pieces = fillable_pieces();
  EXPECT_EQ(encode_masked(pieces, "a [MASK] bc[MASK]"),
            (std::vector<std::int32_t>{2, 5, 4, 6, 11, 4, 3}));
  EXPECT_EQ(encode_masked(pieces, ""), (std::vector<std::int32_t>{2, 3}));
}

TEST(FillMask, SaysWhatItCannotFill) {
  const WordPiece pieces = fillable_pieces();
  const auto says = [&](const std::string& text, const std::vector<std::string>& fragments) {
    return error_says([&] { require_fillable(pieces, text, 12); }, fragments);
  };
  require_fillable(pieces, "a [MASK] b [MASK]", 12);
  EXPECT_TRUE(says("a b", {"\"a b\"", "0 of them [MASK]", "1 to 2"}));
  EXPECT_TRUE(says("[MASK] [MASK] [MASK]", {"3 of them"}));
  EXPECT_TRUE(says("a b c d a b c d a b [MASK]", {"found 13 tokens", "at most 12"}));
}

// By hand: the logits of the places, through a softmax over the vocabulary.
TEST(FillMask, SaysTheModelsProbabilities) {
  TestWorld world;
  GptConfig config = odd_config(DType::F64);
  const WordPiece pieces = fillable_pieces();
  config.encoder_blocks = config.layers;
  config.vocabulary = pieces.vocabulary();
  config.context = 12;
  const std::int64_t K = most_masked(config.context);
  ASSERT_EQ(K, 2);
  const TestGpt gpt(world, config, 3, DType::F64,
                    bert_parts({.batch = 1, .predictions = K}, gpt2_parts(), nullptr));
  const auto found = fill_mask(world.rank, gpt.model, config, pieces, "a [MASK] b", 13);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].size(), 13u);
  // [CLS] a [MASK] b [SEP]: place 2, and one that is not there.
  const MicroBatch micro = micro_batch_of(
      {.tokens = ids_tensor({2, 5, 4, 6, 3, 0, 0, 0, 0, 0, 0, 0}, world.device).reshaped({1, 12}),
       .targets = ids_tensor({0, 0, -1}, world.device),
       .lengths = ids_tensor({5}, world.device),
       .segments = Tensor::zeros({1, 12}, DType::I32, world.device),
       .picked = ids_tensor({0, 2, 12}, world.device)},
      {.training = false});
  const Tensor scores = forward(gpt.model, micro.batch.tokens, {}, micro.pass);
  const std::vector<double> logits = to_doubles(scores);  // 2 of the pair, then rows of the table
  double sum = 0, all = 0;
  for (int v = 0; v < 13; ++v) sum += std::exp(logits[2 + static_cast<std::size_t>(v)]);
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    const auto& [piece, probability] = found[0][i];
    const std::int32_t id =
        piece.starts_with("##") || piece.starts_with("[") ? -1 : pieces.encode(piece).front();
    if (id >= 0) {
      EXPECT_NEAR(probability, std::exp(logits[2 + static_cast<std::size_t>(id)]) / sum, 1e-12)
          << piece;
    }
    if (i > 0) {
      EXPECT_LE(probability, found[0][i - 1].second);
    }
    all += probability;
  }
  EXPECT_NEAR(all, 1, 1e-12);
  EXPECT_EQ(in_lines({{{"a", .5}, {"##b", .25}}, {{"c", 1}}}), "a 50 %, ##b 25 %\nc 100 %\n");
}

}  // namespace
}  // namespace aisc
