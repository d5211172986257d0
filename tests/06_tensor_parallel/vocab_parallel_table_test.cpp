// A vocabulary of which each rank has some rows: lookups as they are written; the table's parts and
// the head as they are given.
#include "06_tensor_parallel/vocab_parallel_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

using Index = std::int64_t;
using Ids = std::vector<std::int32_t>;
constexpr double kUnwritten = std::numeric_limits<double>::quiet_NaN();  // what new memory holds

// So many words, and rows up to a multiple: the rest is padding.
GptConfig config_of(Index words, Index multiple = 1, Index width = 2) {
  return {.width = width, .vocabulary = words, .vocabulary_multiple = multiple};
}

// Row r of the vocabulary is 10 r + 1, 10 r + 2, ...
double number(Index row, Index column) { return static_cast<double>(10 * row + column + 1); }

struct Lookup {
  Lookup(const Rank& rank, Communicator& tp, const GptConfig& config)
      : device(rank.device),
        owned(rank, std::make_unique<VocabParallelEmbedding>(rank, tp, part_of_table(tp, config),
                                                             DType::F64)) {
    const Parameter& table = *owned.layer->parameters()[0];
    std::vector<double> values;
    for (Index row = 0; row < table.shape[0]; ++row)
      for (Index c = 0; c < config.width; ++c) values.push_back(number(table.split_begin + row, c));
    write_doubles(table.value(), values);
  }
  Tensor operator()(const Ids& ids) const {
    const auto count = static_cast<Index>(ids.size());
    Saved saved;
    return owned.layer->forward(ids_tensor(ids, device).reshaped({1, count}), saved, {});
  }

  Device& device;
  split::Owned owned;
};

// The sum of what t ranks find, of which rank r takes its first row for row begin(r) of the
// vocabulary.
std::vector<double> found_by(int t, const GptConfig& config, const Ids& ids,
                             const std::function<Index(Index r)>& begin) {
  const Index rows = config.table_rows();
  std::vector<double> sums;
  for (const std::int32_t id : ids)
    for (Index c = 0; c < config.width; ++c) {
      sums.push_back(0);
      for (Index r = 0; r < t; ++r) {
        const Index first = rows * r / t, count = rows * (r + 1) / t - first, at = id - begin(r);
        if (at >= 0 && at < count) sums.back() += number(first + at, c);
      }
    }
  return sums;
}

void expect_found(int t, const GptConfig& config, const Ids& ids) {
  const Index rows = config.table_rows();
  const std::vector<double> expected =
      found_by(t, config, ids, [&](Index r) { return rows * r / t; });
  const std::vector<KnownMistake> mistakes{
      {"all ranks had as many rows, rounded down: their parts differ by one where the rows do not "
       "divide",
       found_by(t, config, ids, [&](Index r) { return rows / t * r; })},
      {"a rank has looked nothing up, and what its new memory held was summed, too: one that has "
       "padding alone adds zeros",
       std::vector<double>(expected.size(), kUnwritten)}};
  split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
    const Lookup lookup(rank, tp, config);
    EXPECT_TRUE(numbers_are(fmt::format("{} words in {} rows on {} ranks, rank {}: x",
                                        config.vocabulary, rows, t, tp.rank()),
                            lookup(ids), expected, mistakes));
  });
}

// Rank 0 has rows 0 and 1, rank 1 has rows 2, 3 and 4. Row 2 is 21 22.
TEST(VocabParallelEmbedding, FiveRowsOnTwoRanksByHand) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    const Lookup lookup(rank, tp, config_of(5));
    EXPECT_TRUE(numbers_are(
        fmt::format("tokens 2, 4, 0 on 2 ranks, rank {}: x", tp.rank()), lookup({2, 4, 0}),
        {21, 22, 41, 42, 1, 2},
        {{"the rank has what it looked up itself: the sum over tp is missing",
          tp.rank() == 0 ? std::vector<double>{0, 0, 0, 0, 1, 2}
                         : std::vector<double>{21, 22, 41, 42, 0, 0}},
         {"row 4, the last of the vocabulary, is no rank's", {21, 22, 0, 0, 1, 2}},
         {"it was summed over all ranks of the world and not over tp", {42, 44, 82, 84, 2, 4}},
         {"what new memory held was summed, too: overwrite it",
          std::vector<double>(6, kUnwritten)}}));
  });
}

// Parts of 2, 3 and 3 rows: tokens 4 and 7 are the last of ranks 1 and 2.
TEST(VocabParallelEmbedding, PartsMayDifferByARow) {
  expect_found(3, config_of(8), {4, 7, 0, 5, 4, 2});
}

// Four parts of two rows: ranks 0 and 1 have the words 0, 1 and 2.
TEST(VocabParallelEmbedding, ARankMayHavePaddingAlone) {
  expect_found(4, config_of(3, 8), {2, 0, 1, 2});
}

TEST(VocabParallelEmbedding, FindsEveryWordOnAnyNumberOfRanks) {
  for (const int t : {1, 2, 3, 4, 7}) {
    const auto size = [&](const char* what, Index least, Index most) {
      return drawn(fmt::format("{} of VocabParallel on {} ranks", what, t), least, most);
    };
    const GptConfig config =
        config_of(size("words", t, 40), size("multiple", 1, 20), size("width", 1, 5));
    Ids ids;
    for (Index word = config.vocabulary; word-- > 0;) ids.push_back(static_cast<int>(word));
    expect_found(t, config, ids);
  }
}

TEST(VocabParallelEmbedding, SumsOnceAndSendsNothingElse) {
  split::on_groups(3, [](const Rank& rank, Communicator& tp) {
    const Lookup lookup(rank, tp, config_of(9, 1, 5));
    const Tensor x = lookup({1, 8, 3, 3});
    EXPECT_EQ(x.shape(), (Shape{1, 4, 5}));
    split::expect_all_reduces(tp, 1, 4 * 5 * 8);  // x, in F64
    // Each rank has the gradients of its rows.
    Saved saved;
    saved.push(ids_tensor({1, 8, 3, 3}, rank.device).reshaped({1, 4}));
    EXPECT_FALSE(lookup.owned.layer->backward(x.clone(), saved, {}));
    split::expect_all_reduces(tp, 1, 4 * 5 * 8);
  });
}

// A rank has 2 or 3 rows, and says so of none of its tokens: the vocabulary has 5.
TEST(VocabParallelEmbedding, SaysWhichTokenIsNoWord) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    const Lookup lookup(rank, tp, config_of(5));
    const auto says = [&](const Ids& ids) { return message_of([&] { lookup(ids); }); };
    EXPECT_EQ(says({4, 5}), "embedding: id[1] is 5, expected 0 <= id < 5");
    EXPECT_EQ(says({-1, 0}), "embedding: id[0] is -1, expected 0 <= id < 5");
  });
}

// (2, 6) tokens to vectors, of the whole table or of parts of it.
split::LayerCase embedding_case(const GptConfig& config, split::MakeLayer make) {
  return {.make = std::move(make),
          .input = {2, 6},
          .output = {2, 6, config.width},
          .words = config.vocabulary};
}
split::LayerCase whole_case(const GptConfig& config) {
  return embedding_case(config, [=](const Rank& rank, Communicator&) {
    return std::make_unique<Embedding>(
        rank, token_table(config.vocabulary, config.table_rows(), config.width), DType::F64);
  });
}
split::LayerCase split_case(const GptConfig& config) {
  return embedding_case(config, [=](const Rank& rank, Communicator& tp) {
    return std::make_unique<VocabParallelEmbedding>(rank, tp, part_of_table(tp, config),
                                                    DType::F64);
  });
}

TEST(VocabParallelEmbedding, TrainsItsRowsAsOneRankTrainsAll) {
  for (const auto& [words, multiple] : {std::pair<Index, Index>{13, 1}, {13, 8}, {5, 16}}) {
    const GptConfig config = config_of(words, multiple, 3);
    SCOPED_TRACE(fmt::format("{} words in {} rows", words, config.table_rows()));
    split::expect_serial(whole_case(config), split_case(config), {1, 2, 3, 4});
  }
}

// --- given -------------------------------------------------------------------------------------

// 5 rows: 2 and 3. 8 rows: 2, 3 and 3.
TEST(VocabParallelTableGiven, PartsByHand) {
  split::on_groups(2, [](const Rank&, Communicator& tp) {
    const Parameter part = part_of_table(tp, config_of(5));
    EXPECT_EQ(part.split_begin, tp.rank() == 0 ? 0 : 2);
    EXPECT_EQ(part.shape, (Shape{tp.rank() == 0 ? 2 : 3, 2}));
    EXPECT_EQ(part_of_vocabulary(part).begin, part.split_begin);
    EXPECT_EQ(part_of_vocabulary(part).all, 5);
  });
  split::on_groups(3, [](const Rank&, Communicator& tp) {
    const Parameter part = part_of_table(tp, config_of(7, 8));
    const Index begins[] = {0, 2, 5}, rows[] = {2, 3, 3};
    EXPECT_EQ(part.split_begin, begins[tp.rank()]);
    EXPECT_EQ(part.shape, (Shape{rows[tp.rank()], 2}));
    EXPECT_EQ(part_of_vocabulary(part).all, 8) << "padding is a part of the table";
  });
}

TEST(VocabParallelTableGiven, StartsWithTheValuesOfTheWhole) {
  const GptConfig config = config_of(13, 8, 3);
  split::expect_serial_values(whole_case(config), split_case(config), {1, 2, 3, 4, 7});
}

// Logits of 11 words in 12 rows, and their gradients.
TEST(VocabParallelHeadGiven, IsTheSerialHead) {
  const GptConfig config = config_of(11, 12, 5);
  split::LayerCase whole{.make =
                             [&](const Rank& rank, Communicator&) {
                               return std::make_unique<TiedHead>(rank, token_table(11, 12, 5));
                             },
                         .input = {2, 3, 5},
                         .output = {2, 3, 12},
                         .output_is = split::Columns::Split};
  split::LayerCase head = whole;
  head.make = [&](const Rank& rank, Communicator& tp) {
    return std::make_unique<VocabParallelHead>(rank, tp, part_of_table(tp, config));
  };
  for (const bool deferred : {false, true}) {
    head.deferred = deferred;
    split::expect_serial(whole, head, {1, 2, 3, 4});
  }
}

}  // namespace
}  // namespace aisc
