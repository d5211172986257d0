// Ranks count and encode parts of a text: the whole's words and tokens, on any number of them.
#include "app/tokenize_by_ranks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/comm/launch.h"

namespace aisc {
namespace {

const std::string kTextForRanks =
    "it's 12 words: low lower\nlowest  中文。low <|endoftext|>low low ";

TEST(TokenizeByRanks, IsWhatOneRankDoes) {
  const Tokenizer tokenizer = Tokenizer::train(kTextForRanks, 270);
  const std::vector<std::int64_t> seams{7, 30};
  const auto ids = encode_documents(tokenizer, kTextForRanks, seams, SpecialTokens::AreRead);
  const std::vector<WordCount> words = count_words(kTextForRanks);
  for (const int ranks : {1, 2, 3, 8, 50})
    launch({.ranks = ranks}, [&](const Rank& rank) {
      const auto counted = count_words(rank.world, kTextForRanks);
      const auto tokens =
          encode_documents(rank.world, tokenizer, kTextForRanks, seams, SpecialTokens::AreRead);
      if (rank.world.rank() > 0) {
        EXPECT_TRUE(counted.empty() && tokens.empty());
        return;
      }
      EXPECT_EQ(std::vector<std::int32_t>(tokens.begin(), tokens.end()), ids) << ranks;
      ASSERT_EQ(counted.size(), words.size()) << ranks;
      for (std::size_t i = 0; i < words.size(); ++i) {
        EXPECT_EQ(counted[i].word, words[i].word);
        EXPECT_EQ(counted[i].count, words[i].count);
      }
      EXPECT_EQ(Tokenizer::train(counted, 270).hash(), tokenizer.hash());
    });
}

}  // namespace
}  // namespace aisc
