// What BERT learns from, and what of it is held out.
#include "12_encoders/more/bert_task.h"

#include <gtest/gtest.h>

#include <string_view>

#include "app/dataset.h"
#include "common/core/device.h"
#include "common/train/train_config.h"

namespace aisc {
namespace {

TEST(BlockBytesOfPairs, HaveRoomForTwoPairs) {
  EXPECT_EQ(block_bytes_of_pairs(16), 1024) << "as those of other programs";
  EXPECT_EQ(block_bytes_of_pairs(128), 1024);
  EXPECT_EQ(block_bytes_of_pairs(129), 1032);
  EXPECT_EQ(block_bytes_of_pairs(512), 4096);
}

// Tokens of a held-out pair in the course's prose, on the average of 500.
double mean_pair(std::int64_t context, std::int64_t block_bytes) {
  const Corpus corpus = text_of("", block_bytes);
  const std::string_view text(reinterpret_cast<const char*>(corpus.training.data()),
                              corpus.training.size());
  const BertTask task(corpus, "prose", WordPiece::train(text, 1000), "");
  CpuDevice device;
  const Batch batch = task.validation({.model = {.context = context}}, 500)->batch(device, 0, 500);
  double tokens = 0;
  for (const std::int32_t length : batch.lengths.values<std::int32_t>()) tokens += length;
  return tokens / 500;
}

TEST(BlockBytesOfPairs, LetHeldOutPairsGrowWithTheContext) {
  const double few = mean_pair(512, 1024), more = mean_pair(512, block_bytes_of_pairs(512));
  EXPECT_GT(more, 1.4 * few) << "of blocks of 1 KiB hardly a pair fills 512 tokens";
}

}  // namespace
}  // namespace aisc
