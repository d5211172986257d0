// Checkpoints that are cut between forward and backward: the same numbers, 1/n of the bytes.
#include "04_sharding/activation_shards.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"
#include "common/train/recompute.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr std::int64_t kBatch = 3, kTokens = 5, kWidth = 6;

// A GPT of two blocks in F64 with dropout, the same on all ranks, and a micro-batch.
struct Gpt {
  Gpt(const Rank& own, const std::string& recompute)
      : rank(own),
        model(make_gpt(rank,
                       {.layers = 2,
                        .heads = 2,
                        .width = kWidth,
                        .context = kTokens,
                        .vocabulary = 11,
                        .vocabulary_multiple = 4,
                        .dropout = 0.3,
                        .seed = 5,
                        .dtype = DType::F64},
                       Recompute::parse(recompute).parts())),
        store(rank.device, make_units(model),
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}),
        tokens(ids("tokens")),
        targets(ids("targets")) {
    store.initialize(1);
  }

  Tensor ids(const std::string& name) const {
    return ids_tensor(random_ids(kBatch * kTokens, 11, name), rank.device)
        .reshaped({kBatch, kTokens});
  }
  double run(Hooks hooks) {
    store.clear_grads();
    return forward_backward(model, tokens, targets, {.step = 2}, 0.5, hooks);
  }

  Rank rank;
  Model model;
  ParameterStore store;
  Tensor tokens, targets;
};

std::int64_t live(const Rank& rank) {
  return rank.device.ledger()[Purpose::Activations].live_bytes;
}

// Every floating tensor is cut, however small.
ActivationShards all_cut(const Rank& rank) {
  return ActivationShards(rank, rank.world, {.least_bytes = 1});
}

std::string where(const Rank& rank, const std::string& recompute) {
  return std::to_string(rank.world.size()) + " ranks, rank " + std::to_string(rank.world.rank()) +
         ", recompute " + recompute;
}

// f(rank, recompute) in each world.
template <class F>
void in_worlds(F f) {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const char* recompute : {"none", "block", "every:2"})
      launch(late(ranks), [&](const Rank& rank) { f(rank, recompute); });
}

TEST(ActivationShards, LossAndGradientsKeepTheirBits) {
  in_worlds([](const Rank& rank, const std::string& recompute) {
    const NoLeak no_leak(rank.device);
    Gpt gpt(rank, recompute);
    const double loss = gpt.run({});
    std::vector<Tensor> gradients;
    for (const Parameter* p : gpt.store.parameters()) {
      gradients.push_back(Tensor(p->shape, DType::F64, rank.device));
      rank.device.copy(gradients.back(), p->grad());
    }
    ops::fill(gpt.store.grads(), 7);
    ActivationShards shards = all_cut(rank);
    LayerHook* const hook = &shards;
    EXPECT_EQ(gpt.run({&hook, 1}), loss) << where(rank, recompute);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      EXPECT_TRUE(same_bits(gpt.store.parameters()[i]->grad(), gradients[i]))
          << where(rank, recompute) << ": gradient of " << gpt.store.parameters()[i]->name;
  });
}

// What layers have saved, each storage of a layer once: bytes as they are, and cut into parts.
struct Books {
  std::int64_t whole_bytes = 0, part_bytes = 0;
  std::int64_t parts = 0;        // tensors that are cut
  std::int64_t parts_bytes = 0;  // of them alone
};
Books books_of(std::span<Saved> saved, std::int64_t ranks, std::int64_t least_bytes) {
  Books books;
  for (Saved& layer : saved) {
    std::set<const void*> seen;
    for (const Tensor& tensor : layer.tensors()) {
      if (!seen.insert(tensor.view().raw()).second) continue;
      const auto bytes = static_cast<std::int64_t>(tensor.bytes());
      books.whole_bytes += bytes;
      const bool cut = tensor.dtype() == DType::F64 && bytes >= least_bytes && ranks > 1;
      const std::int64_t part = cut ? (tensor.count() + ranks - 1) / ranks * 8 : bytes;
      books.part_bytes += part;
      if (cut) ++books.parts, books.parts_bytes += part;
    }
  }
  return books;
}

// Two runs of forward, the first to see what it saves; `least_bytes` for the second.
void expect_cut(const Rank& rank, const std::string& recompute, std::int64_t least_bytes) {
  Gpt gpt(rank, recompute);
  const std::int64_t before = live(rank);  // the tokens are among it
  const auto tokens = static_cast<std::int64_t>(gpt.tokens.bytes());
  const CommStats::Row earlier = rank.world.stats()[CommOp::AllGather];
  Books books;
  {
    std::vector<Saved> saved(gpt.model.layers.size());
    forward_layers(gpt.model, gpt.tokens.share(), saved, {});
    books = books_of(saved, rank.world.size(), least_bytes);
    ASSERT_EQ(live(rank) - before, books.whole_bytes - tokens) << "one storage, one layer";
  }
  ActivationShards shards(rank, rank.world, {.least_bytes = least_bytes});
  LayerHook* const hook = &shards;
  std::vector<Saved> saved(gpt.model.layers.size());
  Tensor logits = forward_layers(gpt.model, gpt.tokens.share(), saved, {}, {&hook, 1});
  const Tensor dlogits = logits.clone();
  logits = Tensor();
  EXPECT_EQ(live(rank) - before - static_cast<std::int64_t>(dlogits.bytes()),
            books.part_bytes - tokens)
      << where(rank, recompute) << ": activations between forward and backward";
  EXPECT_TRUE(same_bits(saved[0].tensors()[0], gpt.tokens)) << "tokens are not cut";
  EXPECT_EQ(rank.world.stats()[CommOp::AllGather].calls, earlier.calls) << "forward sends nothing";
  backward_layers(gpt.model, dlogits.share(), saved, {}, {&hook, 1});
  const CommStats::Row gathers = rank.world.stats()[CommOp::AllGather];
  EXPECT_EQ(gathers.calls - earlier.calls, books.parts) << where(rank, recompute);
  EXPECT_EQ(gathers.payload_bytes - earlier.payload_bytes, books.parts_bytes)
      << where(rank, recompute);
}

// Of all floating tensors, and of those alone that are as large as a norm's means, or larger.
TEST(ActivationShards, ARankKeepsItsPartAndGathersItOnce) {
  constexpr std::int64_t kMeans = kBatch * kTokens * 8;  // bytes
  in_worlds([](const Rank& rank, const std::string& recompute) {
    for (const std::int64_t least_bytes : {std::int64_t{1}, kMeans, kMeans + 1})
      expect_cut(rank, recompute, least_bytes);
  });
}

// The paper's case: the 3 x 5 x 6 numbers that a block keeps are 90 / n on each rank.
TEST(ActivationShards, ACheckpointOfABlockByHand) {
  for (const int ranks : {1, 2, 3})
    launch(late(ranks), [&](const Rank& rank) {
      Gpt gpt(rank, "block");
      ActivationShards shards = all_cut(rank);
      LayerHook* const hook = &shards;
      std::vector<Saved> saved(gpt.model.layers.size());
      forward_layers(gpt.model, gpt.tokens.share(), saved, {}, {&hook, 1});
      for (const std::size_t block : {3, 4})  // after embedding, positions, dropout
        EXPECT_EQ(saved[block].bytes(), kBatch * kTokens * kWidth * 8 / ranks) << ranks;
    });
}

// A layer's Saved of one storage twice, under two shapes, one of its own, and indices.
struct SavedByHand {
  explicit SavedByHand(Device& device)
      : five(from_doubles({1, 2, 3, 4, 5}, {5}, DType::F32, device)),
        six(from_doubles({6, 7, 8, 9, 10, 11}, {2, 3}, DType::F32, device)),
        ids(ids_tensor({1, 2, 3}, device)) {}
  Saved saved() const {
    Saved saved;
    saved.push(six.share());
    saved.push(ids.share());
    saved.push(five.share());
    saved.push(six.share().reshaped({3, 2}));
    return saved;
  }
  Tensor five, six, ids;
};

TEST(ActivationShards, ASharedStorageIsCutOnceAndSharedAgain) {
  launch(late(4), [](const Rank& rank) {
    const SavedByHand by_hand(rank.device);
    Saved saved = by_hand.saved();
    ActivationShards shards = all_cut(rank);
    shards.after_forward(0, {}, saved);
    const std::span<Tensor> tensors = saved.tensors();
    // 6 = 2 + 2 + 2 + 0 and 5 = 2 + 2 + 1 + 0: parts of 2, where nothing is left padded with zeros.
    const std::vector<std::vector<double>> sixes{{6, 7}, {8, 9}, {10, 11}, {0, 0}},
        fives{{1, 2}, {3, 4}, {5, 0}, {0, 0}};
    const auto me = static_cast<std::size_t>(rank.world.rank());
    EXPECT_EQ(to_doubles(tensors[0]), sixes[me]);
    EXPECT_EQ(to_doubles(tensors[2]), fives[me]);
    EXPECT_EQ(tensors[3].view().raw(), tensors[0].view().raw()) << "one part for one storage";
    EXPECT_EQ(tensors[1].view().raw(), by_hand.ids.view().raw()) << "indices are not cut";
    EXPECT_EQ(saved.bytes(), 2 * 4 + 2 * 4 + 3 * 4);

    shards.before_backward(0, {}, saved);
    EXPECT_TRUE(same_bits(tensors[0], by_hand.six));
    EXPECT_TRUE(same_bits(tensors[2], by_hand.five));
    EXPECT_EQ(tensors[3].shape(), (Shape{3, 2}));
    EXPECT_EQ(tensors[3].view().raw(), tensors[0].view().raw()) << "shared again";
    EXPECT_EQ(rank.world.stats()[CommOp::AllGather].calls, 2);
    EXPECT_EQ(rank.world.stats()[CommOp::AllGather].payload_bytes, 2 * 8);
  });
}

// Whole tensors are gathered in their place: 6 elements on 2 and 3 ranks, but not on 4.
TEST(ActivationShards, NothingIsCopiedWhereRanksDivide) {
  for (const int ranks : {2, 3, 4})
    launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
      Saved saved;
      saved.push(from_doubles({1, 2, 3, 4, 5, 6}, {2, 3}, DType::F32, rank.device));
      ActivationShards shards = all_cut(rank);
      shards.after_forward(0, {}, saved);
      rank.device.reset_peaks();
      shards.before_backward(0, {}, saved);
      EXPECT_EQ(to_doubles(saved.tensors()[0]), (std::vector<double>{1, 2, 3, 4, 5, 6}));
      EXPECT_EQ(rank.device.ledger()[Purpose::Communication].peak_bytes, ranks == 4 ? 8 * 4 : 0);
    });
}

// A pipeline has several micro-batches under way, here of different sizes.
TEST(ActivationShards, MicroBatchesAreToldApart) {
  launch(late(3), [](const Rank& rank) {
    ActivationShards shards = all_cut(rank);
    std::vector<Tensor> wholes;
    std::vector<Saved> saved(3);
    for (int m = 0; m < 3; ++m) {
      wholes.push_back(random_tensor({m + 4}, DType::BF16, rank.device, "x" + std::to_string(m)));
      saved[index(m)].push(wholes.back().clone());
      shards.after_forward(1, {.micro_batch = m}, saved[index(m)]);
    }
    for (const int m : {1, 0, 2}) {
      Saved& of = saved[index(m)];
      EXPECT_EQ(of.tensors()[0].count(), 2);
      for (int times = 0; times < 2; ++times) {  // the second time nothing is left to be gathered
        shards.before_backward(1, {.micro_batch = m}, of);
        EXPECT_TRUE(same_bits(of.tensors()[0], wholes[index(m)])) << m;
      }
    }
  });
}

TEST(ActivationShardsGiven, EvaluationHasNothingToCut) {
  launch(late(2), [](const Rank& rank) {
    Gpt gpt(rank, "none");
    const double loss = evaluate(gpt.model, gpt.tokens, gpt.targets);
    ActivationShards shards = all_cut(rank);
    LayerHook* const hook = &shards;
    EXPECT_EQ(evaluate(gpt.model, gpt.tokens, gpt.targets, {&hook, 1}), loss);
    EXPECT_EQ(rank.world.stats()[CommOp::AllGather].calls, 0);
  });
}

TEST(ActivationShardsGiven, AnotherSavedIsAnError) {
  launch(late(2), [](const Rank& rank) {
    const SavedByHand by_hand(rank.device);
    Saved saved = by_hand.saved();
    ActivationShards shards = all_cut(rank);
    shards.after_forward(5, {}, saved);
    saved.pop();
    EXPECT_TRUE(error_says([&] { shards.before_backward(5, {}, saved); },
                           {"layer 5 has 3 saved tensors, 4 after its forward"}));
  });
}

}  // namespace
}  // namespace aisc
