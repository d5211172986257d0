// What a rank of those that share each sequence has of a batch for BERT: worked by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/train/step_parts.h"
#include "tests/12_encoders/some_pairs.h"
#include "tests/nn/gpt_fixture.h"

namespace aisc {
namespace {

std::vector<std::int32_t> ids_of(const Tensor& x) {
  return {x.values<std::int32_t>().begin(), x.values<std::int32_t>().end()};
}
using Ids = std::vector<std::int32_t>;

// Two samples of 5 tokens; picked are both first tokens, tokens 4 and 2 of the first sample, token
// 3 of the second, and one that is not there.
Batch two_samples(Device& device) {
  return {.tokens = ids_tensor({10, 11, 12, 13, 14, 20, 21, 22, 23, 24}, device).reshaped({2, 5}),
          .targets = ids_tensor({0, 1, 54, 52, 63, -1}, device),
          .terms = 3,
          .lengths = ids_tensor({5, 4}, device),
          .segments = ids_tensor({0, 0, 0, 1, 1, 0, 0, 1, 1, 0}, device).reshaped({2, 5}),
          .picked = ids_tensor({0, 5, 4, 2, 8, 10}, device)};
}

TEST(BatchOfPart, HasTheTokensOfOneRun) {
  TestWorld world;
  const Batch first = batch_of_part(two_samples(world.device), {.count = 3});
  EXPECT_EQ(ids_of(first.tokens), (Ids{10, 11, 12, 20, 21, 22}));
  EXPECT_EQ(ids_of(first.segments), (Ids{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(ids_of(first.picked), (Ids{0, 3, 6, 2, 6, 6})) << "6 stands for what is not here";
  EXPECT_EQ(ids_of(first.targets), (Ids{0, 1, -1, 52, -1, -1}));
  const Batch second = batch_of_part(two_samples(world.device), {.count = 2, .runs = {.first = 3}});
  EXPECT_EQ(ids_of(second.tokens), (Ids{13, 14, 23, 24}));
  EXPECT_EQ(ids_of(second.segments), (Ids{1, 1, 1, 0}));
  EXPECT_EQ(ids_of(second.picked), (Ids{4, 4, 1, 4, 2, 4}));
  EXPECT_EQ(ids_of(second.targets), (Ids{-1, -1, 54, -1, 63, -1}));
  for (const Batch* part : {&first, &second}) {
    EXPECT_EQ(ids_of(part->lengths), (Ids{5, 4})) << "of whole sequences";
    EXPECT_EQ(part->terms, 3) << "of the whole batch";
  }
}

// A zigzag: tokens 1 and 4; the others are another rank's.
TEST(BatchOfPart, HasTheTokensOfTwoRuns) {
  TestWorld world;
  const Batch part = batch_of_part(two_samples(world.device),
                                   {.count = 2, .runs = {.first = 1, .split = 1, .second = 4}});
  EXPECT_EQ(ids_of(part.tokens), (Ids{11, 14, 21, 24}));
  EXPECT_EQ(ids_of(part.picked), (Ids{4, 4, 1, 4, 4, 4}));
  EXPECT_EQ(ids_of(part.targets), (Ids{-1, -1, 54, -1, -1, -1}));
}

TEST(BatchOfPart, HasATargetATokenWhereNoneArePicked) {
  TestWorld world;
  Batch batch = two_samples(world.device);
  batch.picked = {};
  batch.segments = {};
  batch.targets = batch.tokens.share();
  const Batch part = batch_of_part(std::move(batch), {.count = 2, .runs = {.first = 1}});
  EXPECT_EQ(ids_of(part.targets), (Ids{11, 12, 21, 22}));
  EXPECT_FALSE(part.segments);
}

// Each label is on one rank, in its row.
TEST(BatchOfPart, DividesTheLabelsOfDrawnPairs) {
  TestWorld world;
  const SomePairs pairs(13, 17, 4);
  const Batch whole = pairs.batch(world.device, 3, 6);
  const Ids places = ids_of(whole.picked), labels = ids_of(whole.targets);
  EXPECT_EQ(whole.terms, std::count_if(labels.begin() + 6, labels.end(),
                                       [](std::int32_t label) { return label >= 0; }));
  std::vector<int> found(labels.size());
  for (const TokenPart& part : {TokenPart{.count = 5}, {.count = 8, .runs = {.first = 5}}}) {
    const Batch own = batch_of_part(pairs.batch(world.device, 3, 6), part);
    const Ids rows = ids_of(own.picked), targets = ids_of(own.targets);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == 6 * part.count) continue;
      ++found[i];
      EXPECT_EQ(targets[i], labels[i]);
      EXPECT_EQ(own.tokens.data<std::int32_t>()[rows[i]],
                whole.tokens.data<std::int32_t>()[places[i]]);
    }
  }
  for (std::size_t i = 0; i < labels.size(); ++i) EXPECT_EQ(found[i], labels[i] >= 0 ? 1 : 0) << i;
}

}  // namespace
}  // namespace aisc
