// Recomputation of the core alone, within a budget.
#include "07_sequence_parallel/selective.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "07_sequence_parallel/stored_attention.h"
#include "common/comm/launch.h"
#include "common/nn/kept_bytes.h"
#include "tests/support/compare.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr std::int64_t kSamples = 2, kTokens = 6, kHeads = 3, kColumns = 12;
constexpr std::int64_t kInputBytes = kSamples * kTokens * 3 * kColumns * 4;  // bytes of F32
constexpr std::int64_t kScores =
    kSamples * kHeads * kTokens * kTokens;                      // of them each 4 + 1 + 4 bytes
constexpr std::int64_t kCoreBytes = kInputBytes + 9 * kScores;  // what StoredAttention keeps

// Counts what it is asked for, around StoredAttention.
class Counted final : public Layer {
 public:
  explicit Counted(const Rank& rank)
      : Layer(rank, "core"),
        core_(rank, "core", kHeads,
              std::make_unique<Dropout>(rank, "masks", 0.3, 5, Masks::Stored)) {}
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    ++(pass.recompute ? again : first);
    return core_.forward(std::move(x), saved, pass);
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    return core_.backward(std::move(dy), saved, pass);
  }
  mutable int first = 0, again = 0;

 private:
  StoredAttention core_;
};

struct Fixture {
  explicit Fixture(const Rank& rank)
      : own(std::make_unique<Counted>(rank)),
        counted(*own),
        layer(rank, std::move(own)),
        x(random_tensor({kSamples, kTokens, 3 * kColumns}, DType::F32, rank.device, "x")),
        dy(random_tensor({kSamples, kTokens, kColumns}, DType::F32, rank.device, "dy")) {}
  Tensor forward(Saved& saved, const Pass& pass) { return layer.forward(x.clone(), saved, pass); }
  Tensor backward(Saved& saved, const Pass& pass) {
    return layer.backward(dy.clone(), saved, pass);
  }

  std::unique_ptr<Counted> own;
  Counted& counted;
  SelectiveCore layer;
  Tensor x, dy;
};

TEST(SelectiveRecomputation, KeepsTheInputAndMakesTheRestAgain) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Fixture f(rank);
    Saved saved;
    f.forward(saved, {});
    EXPECT_EQ(saved.bytes(), kInputBytes) << "the core's input, and nothing that it makes";
    EXPECT_EQ(f.counted.first, 1);
    f.backward(saved, {});
    EXPECT_EQ(f.counted.again, 1) << "one forward more, which says that it is a repetition "
                                     "(Pass::recompute)";
    EXPECT_EQ(saved.size(), 0u);
  });
}

TEST(SelectiveRecomputation, HasTheSameBitsKeptOrNot) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Fixture f(rank);
    Counted plain(rank);
    Saved of_plain, made_again, kept;
    KeptBytes budget(kCoreBytes);
    const Pass pass{.step = 4, .first_sample = 2}, with_budget = [&] {
      Pass p = pass;
      p.kept = &budget;
      return p;
    }();
    const Tensor y = plain.forward(f.x.clone(), of_plain, pass);
    const Tensor dx = plain.backward(f.dy.clone(), of_plain, pass);
    EXPECT_TRUE(same_bits(f.forward(made_again, pass), y));
    EXPECT_TRUE(same_bits(f.backward(made_again, pass), dx));
    EXPECT_TRUE(same_bits(f.forward(kept, with_budget), y));
    EXPECT_EQ(kept.bytes(), kCoreBytes) << "the budget has room for it";
    EXPECT_TRUE(same_bits(f.backward(kept, with_budget), dx));
    EXPECT_EQ(f.counted.again, 1) << "what was kept is not made again";
    EXPECT_EQ(kept.size(), 0u);
  });
}

// Room for two cores and a half. Of four forwards the first two keep all; the backward of one makes
// room for a fifth.
TEST(SelectiveRecomputation, KeepsAsManyAsTheBudgetAllows) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Fixture f(rank);
    KeptBytes budget(2 * kCoreBytes + kCoreBytes / 2);
    const Pass pass{.kept = &budget};
    Saved saved[5];
    std::string kept;
    for (int i : {0, 1, 2, 3}) {
      f.forward(saved[i], pass);
      kept += saved[i].bytes() == kCoreBytes    ? "all "
              : saved[i].bytes() == kInputBytes ? "input "
                                                : "? ";
    }
    EXPECT_EQ(kept, "all all input input ");
    f.backward(saved[0], pass);
    f.forward(saved[4], pass);
    EXPECT_EQ(saved[4].bytes(), kCoreBytes) << "the first backward has given its bytes back";
    for (int i : {1, 2, 3, 4}) f.backward(saved[i], pass);
    EXPECT_EQ(f.counted.again, 2);
    EXPECT_TRUE(budget.keep(2 * kCoreBytes + kCoreBytes / 2)) << "all of the budget is free again";
  });
}

TEST(SelectiveRecomputation, WhatDoesNotFitIsGivenUp) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Fixture f(rank);
    KeptBytes budget(kCoreBytes - 1);
    Saved saved;
    f.forward(saved, {.kept = &budget});
    EXPECT_EQ(saved.bytes(), kInputBytes);
    EXPECT_TRUE(budget.keep(kCoreBytes - 1)) << "and takes nothing of the budget";
  });
}

// Within a block that is itself recomputed, or in evaluation, nothing is kept: nothing is counted.
TEST(SelectiveRecomputation, CountsNothingWhereNothingIsKept) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Fixture f(rank);
    KeptBytes budget(kCoreBytes);
    Saved nothing = Saved::nothing();
    f.forward(nothing, {.kept = &budget});
    EXPECT_TRUE(budget.keep(kCoreBytes));
  });
}

}  // namespace
}  // namespace aisc
