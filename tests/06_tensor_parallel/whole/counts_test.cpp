// What a block sends, and how often: Megatron's split, and two others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "06_tensor_parallel/more/naive_splits.h"
#include "06_tensor_parallel/parallel_block.h"
#include "common/nn/driver.h"
#include "common/train/recompute.h"
#include "tests/06_tensor_parallel/split_layers.h"

namespace aisc {
namespace {

using PartsOver = std::function<GptParts(Communicator&)>;

// b s h: of one tensor of activations. 12 divides it for all numbers of ranks here.
constexpr std::int64_t kSamples = 2, kTokens = 3, kWidth = 24, kHeads = 12;
constexpr std::int64_t kTensor = kSamples * kTokens * kWidth;

struct Sent {
  std::int64_t all_reduces = 0, reduced = 0;   // calls, and elements of their buffers
  std::int64_t all_gathers = 0, gathered = 0;  // the same, of what a rank has
  std::int64_t others = 0;                     // calls
  std::int64_t sent = 0;                       // elements, as messages
};

Sent operator-(const CommStats& after, const CommStats& before) {
  constexpr std::int64_t kBytes = 8;
  Sent sent;
  for (std::size_t i = 0; i < after.rows.size(); ++i) {
    const auto op = static_cast<CommOp>(i);
    const std::int64_t calls = after[op].calls - before[op].calls;
    const std::int64_t count = (after[op].payload_bytes - before[op].payload_bytes) / kBytes;
    if (op == CommOp::AllReduce)
      sent.all_reduces = calls, sent.reduced = count;
    else if (op == CommOp::AllGather)
      sent.all_gathers = calls, sent.gathered = count;
    else
      sent.others += calls;
  }
  sent.sent = (after.sent().wire_bytes - before.sent().wire_bytes) / kBytes;
  return sent;
}

// Forward, and backward behind it, by ring plans.
struct Both {
  Sent forward, backward;
};
Both both_of(int t,
             const std::function<void(const Rank&, const std::function<void()>& between)>& run) {
  Both both;
  launch(late(t), [&](const Rank& rank) {
    rank.world.use_plans(default_plans());
    const CommStats at_first = rank.world.stats();
    CommStats between;
    run(rank, [&] { between = rank.world.stats(); });
    if (rank.world.rank() == 0) both = {between - at_first, rank.world.stats() - between};
  });
  return both;
}

Both both_of_part(int t, const PartsOver& parts_over, GptParts::Make GptParts::*part) {
  const GptConfig config{.layers = 1, .heads = kHeads, .width = kWidth, .dtype = DType::F64};
  return both_of(t, [&](const Rank& rank, const auto& between) {
    const GptParts parts = parts_over(rank.world);
    split::Owned owned(rank, (parts.*part)({rank, "part", config, parts}));
    const auto tensor = [&] {
      return random_tensor({kSamples, kTokens, kWidth}, DType::F64, rank.device, "x");
    };
    Saved saved;
    owned.layer->forward(tensor(), saved, {});
    between();
    owned.layer->backward(tensor(), saved, {});
  });
}

constexpr int kRanks[] = {1, 2, 3, 4};

GptParts parts_in_parts(Communicator& tp) { return tensor_parallel_parts(tp); }

TEST(TensorParallelCounts, ABlockSumsTwiceForwardAndTwiceBackward) {
  for (const int t : kRanks) {
    const Both both = both_of_part(t, parts_in_parts, &GptParts::block);
    for (const Sent& s : {both.forward, both.backward}) {
      EXPECT_EQ(s.all_reduces, 2) << t << " ranks";
      EXPECT_EQ(s.reduced, 2 * kTensor) << t << " ranks: of b s h elements each";
      EXPECT_EQ(s.all_gathers + s.others, 0) << t << " ranks";
    }
    EXPECT_EQ(both.forward.sent + both.backward.sent, 8 * kTensor * (t - 1) / t)
        << t << " ranks: 8 b s h (t-1)/t";
  }
}

// A sum in front of the GELU and one behind the second matrix.
TEST(TensorParallelCounts, RowsFirstNeedsTwoSumsInPlaceOfOne) {
  const PartsOver rows_first = [](Communicator& tp) {
    GptParts parts = tensor_parallel_parts(tp);
    parts.mlp = [&tp](const GptParts::Wanted& w) { return rows_first_mlp(w, tp); };
    return parts;
  };
  for (const int t : kRanks) {
    const Both columns = both_of_part(t, parts_in_parts, &GptParts::mlp);
    const Both rows = both_of_part(t, rows_first, &GptParts::mlp);
    EXPECT_EQ(columns.forward.all_reduces, 1);
    EXPECT_EQ(columns.forward.reduced, kTensor);
    EXPECT_EQ(rows.forward.all_reduces, 2);
    EXPECT_EQ(rows.forward.reduced, (4 + 1) * kTensor) << "4 b s h hidden values, b s h behind";
    EXPECT_EQ(rows.backward.all_gathers, 2);
    EXPECT_EQ(rows.backward.gathered * t, (4 + 1) * kTensor);
    EXPECT_EQ(columns.forward.sent + columns.backward.sent, 4 * kTensor * (t - 1) / t);
    EXPECT_EQ(rows.forward.sent + rows.backward.sent, 15 * kTensor * (t - 1) / t);
  }
}

TEST(TensorParallelCounts, TheStraightSplitSendsAlmostThreeTimesAsMuch) {
  for (const int t : kRanks) {
    const Both both = both_of_part(t, straight_parts, &GptParts::block);
    EXPECT_EQ(both.forward.all_gathers, 4) << "behind each of the four products";
    EXPECT_EQ(both.forward.gathered * t, (3 + 1 + 4 + 1) * kTensor);
    EXPECT_EQ(both.forward.all_reduces + both.forward.others, 0);
    EXPECT_EQ(both.backward.all_reduces, 4) << "of the input of each of them";
    EXPECT_EQ(both.backward.reduced, (1 + 1 + 1 + 4) * kTensor);
    EXPECT_EQ(both.backward.all_gathers + both.backward.others, 0);
    EXPECT_EQ(both.forward.sent + both.backward.sent, 23 * kTensor * (t - 1) / t)
        << t << " ranks: Megatron's split sends 8 b s h (t-1)/t";
  }
}

constexpr std::int64_t kLayers = 3;

// 13 words in 16 rows, on ranks of 5 or 6 of them.
Both both_of_model(int t, const PartsOver& parts_over) {
  const GptConfig config{.layers = kLayers,
                         .heads = kHeads,
                         .width = kWidth,
                         .context = kTokens,
                         .vocabulary = 13,
                         .vocabulary_multiple = 16,
                         .dtype = DType::F64};
  return both_of(t, [&](const Rank& rank, const auto& between) {
    const Model model = make_gpt(rank, config, parts_over(rank.world));
    ParameterStore store(rank.device, make_units(model),
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    store.initialize(1);
    std::vector<Saved> saved(model.layers.size());
    const Tensor tokens = Tensor::zeros({kSamples, kTokens}, DType::I32, rank.device);
    Tensor x = forward_layers(model, tokens.share(), saved, {});
    between();
    backward_layers(model, std::move(x), saved, {});
  });
}

// One sum more behind the embedding, and one behind the head.
TEST(TensorParallelCounts, AModelHasTwoSumsMore) {
  for (const int t : kRanks) {
    const Both both = both_of_model(t, parts_in_parts);
    for (const Sent& s : {both.forward, both.backward}) {
      EXPECT_EQ(s.all_reduces, 2 * kLayers + 1) << t << " ranks";
      EXPECT_EQ(s.reduced, (2 * kLayers + 1) * kTensor) << t << " ranks";
      EXPECT_EQ(s.all_gathers + s.others, 0) << t << " ranks";
    }
  }
}

// Its forward runs again in backward.
TEST(TensorParallelCounts, ARecomputedBlockSumsSixTimes) {
  const Both both = both_of_model(2, [](Communicator& tp) {
    return Recompute::parse("block").parts(tensor_parallel_parts(tp));
  });
  EXPECT_EQ(both.forward.all_reduces, 2 * kLayers + 1);
  EXPECT_EQ(both.backward.all_reduces, (2 + 2) * kLayers + 1);
  EXPECT_EQ(both.forward.reduced + both.backward.reduced, (6 * kLayers + 2) * kTensor);
}

}  // namespace
}  // namespace aisc
