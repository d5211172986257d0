// MLP, attention, block and model on several ranks: those of one rank, to rounding.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "06_tensor_parallel/f_and_g.h"
#include "06_tensor_parallel/head_dropout.h"
#include "06_tensor_parallel/parallel_block.h"
#include "common/nn/driver.h"
#include "common/nn/dropout.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"
#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/nn/gpt_fixture.h"

namespace aisc {
namespace {

using split::LayerCase;
using Wanted = const GptParts::Wanted&;

// 12 heads of 2 columns: 1, 2, 3 and 4 ranks divide them.
GptConfig config_of_block(double dropout = 0.2) {
  return {.layers = 2,
          .heads = 12,
          .width = 24,
          .context = 5,
          .vocabulary = 13,
          .vocabulary_multiple = 8,
          .dropout = dropout,
          .seed = 5,
          .dtype = DType::F64};
}

using Change = std::function<void(GptParts&, Communicator& tp)>;

// One of the parts, over tp where there is one.
struct PartCase {
  GptParts::Make GptParts::*part;
  const char* name;
  Pass pass = {};
  bool deferred = false;
  Change serial = {}, split = {};  // of the parts
  int groups = 1;
};

void expect_serial(const PartCase& p) {
  const GptConfig config = config_of_block();
  const auto case_of = [&](bool split) {
    LayerCase c{.input = {2, 5, 24}, .output = {2, 5, 24}, .pass = p.pass};
    c.deferred = split && p.deferred;
    c.make = [&p, config, split](const Rank& rank, Communicator& tp) {
      GptParts parts = split ? tensor_parallel_parts(tp) : gpt2_parts();
      const Change& change = split ? p.split : p.serial;
      if (change) change(parts, tp);
      return (parts.*p.part)({rank, p.name, config, parts});
    };
    return c;
  };
  SCOPED_TRACE(p.name);
  split::expect_serial(case_of(false), case_of(true), {1, 2, 3, 4}, p.groups);
}

const Pass kLater{.step = 9, .first_sample = 3, .tokens = {.first = 2}};

TEST(ParallelBlock, MlpAttentionAndBlockAreTheSerialOnes) {
  for (const Pass& pass : {Pass{}, kLater}) {
    expect_serial({&GptParts::mlp, "mlp", pass});
    expect_serial({&GptParts::attention, "attention", pass});
    expect_serial({&GptParts::block, "blocks.0", pass});
  }
  expect_serial({.part = &GptParts::block, .name = "blocks.0", .groups = 2});
}

TEST(ParallelBlock, BlockWithDeferredWeightGradientsIsTheSerialOne) {
  expect_serial({&GptParts::block, "blocks.0", {}, true});
}

// Forward runs again in backward, with its two sums.
TEST(ParallelBlock, RecomputedBlockIsTheSerialOne) {
  const Change recomputed = [](GptParts& parts, Communicator&) {
    parts.block = [block = parts.block](Wanted w) {
      return std::make_unique<Recomputed>(w.rank, block(w));
    };
  };
  expect_serial({&GptParts::block, "blocks.0", {}, false, {}, recomputed});
}

// Behind the core, on each rank's own heads.
TEST(ParallelBlock, AttentionWithDropoutInsideItsHeadsIsTheSerialOne) {
  const Change whole = [](GptParts& parts, Communicator&) {
    parts.core = [core = parts.core](Wanted w) {
      return in_sequence(w.rank, w.name, core(w),
                         std::make_unique<Dropout>(w.rank, w.name + ".heads", 0.3, 8));
    };
  };
  const Change split = [](GptParts& parts, Communicator& tp) {
    parts.core = [core = parts.core, &tp](Wanted w) {
      return in_sequence(w.rank, w.name, core(w),
                         std::make_unique<HeadDropout>(w.rank, tp, w.name + ".heads", 0.3, 8));
    };
  };
  expect_serial({&GptParts::attention, "attention", {}, false, whole, split});
}

// f in front of a rank's columns of the first matrix, g behind its rows of the second: Linear knows
// nothing of ranks, and the MLP without biases is the serial one.
TEST(ParallelBlock, FAndGAroundSerialLayersAreTheMlp) {
  const std::int64_t C = 6, hidden = 12;
  const auto mlp = [=](const Rank& rank, Communicator& tp) -> std::unique_ptr<Layer> {
    const std::int64_t own = hidden / tp.size();
    return in_sequence(rank, "mlp", std::make_unique<ConjugateLayer>(rank, tp, "f", Conjugate::F),
                       std::make_unique<Linear>(rank, "fc", C, own, 0.5, Linear::Gelu::Behind),
                       std::make_unique<Linear>(rank, "project", own, C, 0.5, Linear::Gelu::Before),
                       std::make_unique<ConjugateLayer>(rank, tp, "g", Conjugate::G));
  };
  const auto run = [&](int t) {
    split::Wholes wholes;
    split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
      split::Owned owned(rank, mlp(rank, tp));
      const std::vector<Parameter*>& p = owned.store.parameters();
      const std::int64_t own = hidden / t;
      const Tensor a = random_tensor({hidden, C}, DType::F64, rank.device, "A");
      rank.device.copy(p[0]->value(), a.rows(tp.rank() * own, (tp.rank() + 1) * own));
      rank.device.copy(p[2]->value(),
                       split::drawn_tensor(rank, tp, {C, hidden}, split::Columns::Split, "B"));
      Saved saved;
      const Tensor y =
          owned.layer->forward(random_tensor({2, 3, C}, DType::F64, rank.device, "x"), saved, {});
      const Tensor dx =
          owned.layer->backward(random_tensor({2, 3, C}, DType::F64, rank.device, "dy"), saved, {});
      wholes.add("y", rank, tp, y, {2, 3, C}, split::Columns::Whole);
      wholes.add("dx", rank, tp, dx, {2, 3, C}, split::Columns::Whole);
      wholes.add("dB", rank, tp,
                 from_doubles(to_doubles(p[2]->grad()), p[2]->shape, DType::F64, rank.device),
                 {C, hidden}, split::Columns::Split);
    });
    RunRecord record;
    record.gradients = wholes.tensors();
    return record;
  };
  const RunRecord one = run(1);
  for (const int t : {2, 3, 4}) EXPECT_TRUE(same_run(one, run(t), kSameRunF64)) << t << " ranks";
}

struct OwnedModel {
  OwnedModel(const Rank& rank, const GptConfig& config, const GptParts& parts)
      : model(make_gpt(rank, config, parts)),
        store(rank.device, make_units(model),
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    store.initialize(3);
    for (const Parameter* p : store.parameters()) split::move_a_little(*p);
  }
  Model model;
  ParameterStore store;
};

// Two steps of two micro-batches; what is not split is the same on all ranks, to the bit.
RunRecord run_model(int t, const std::function<GptParts(Communicator&)>& parts_over) {
  const GptConfig config = config_of_block();
  RunRecord record;
  std::mutex mutex;
  split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
    OwnedModel owned(rank, config, parts_over(tp));
    auto& [model, store] = owned;
    Sgd sgd(slices_of(store.parameters()), {.momentum = 0.9});
    std::vector<double> losses;
    for (std::uint64_t step = 0; step < 2; ++step) {
      store.clear_grads();
      double loss = 0;
      for (int m = 0; m < 2; ++m) {
        const Pass pass{
            .step = step, .micro_batch = m, .last_micro_batch = m == 1, .first_sample = 3 * m};
        const auto seed = 10 * step + static_cast<std::uint64_t>(m);
        loss += forward_backward(model, random_tokens(rank.device, 3, 5, 13, seed),
                                 random_tokens(rank.device, 3, 5, 13, seed + 100), pass, 1.0 / 30);
      }
      losses.push_back(loss / 30);
      sgd.step({.learning_rate = 0.1});
    }
    RunRecord whole = gather_whole(rank, store.parameters());
    const std::lock_guard lock(mutex);
    if (!record.losses.empty()) {
      EXPECT_EQ(record.losses, losses) << "losses of two ranks";
    }
    record = std::move(whole);
    record.losses = losses;
  });
  return record;
}

TEST(ParallelBlock, ModelIsTheSerialOneAfterTwoSteps) {
  const RunRecord one = run_model(1, [](Communicator&) { return gpt2_parts(); });
  for (const int t : {1, 2, 3, 4})
    EXPECT_TRUE(same_run(
        one, run_model(t, [](Communicator& tp) { return tensor_parallel_parts(tp); }), kSameRunF64))
        << t << " ranks";
}

TEST(ParallelBlock, ModelWithRecomputedBlocksIsTheSerialOne) {
  const RunRecord one = run_model(1, [](Communicator&) { return gpt2_parts(); });
  const auto recomputed = [](Communicator& tp) {
    GptParts parts = tensor_parallel_parts(tp);
    parts.recompute_blocks = 2;
    return parts;
  };
  for (const int t : {2, 3}) EXPECT_TRUE(same_run(one, run_model(t, recomputed), kSameRunF64));
}

// Each rank's cache has the keys and values of its own heads.
TEST(ParallelBlock, GrowsASequenceAsTheSerialModelDoes) {
  const GptConfig config = config_of_block(0);
  const auto logits = [&](int t, const std::function<GptParts(Communicator&)>& parts_over) {
    split::Wholes wholes;
    split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
      const OwnedModel owned(rank, config, parts_over(tp));
      KeyValueCache cache(5);
      for (const std::int64_t tokens : {3, 1, 1}) {
        const Tensor last =
            forward_cached(owned.model, random_tokens(rank.device, 2, tokens, 13, 1), cache);
        wholes.add(fmt::format("logits behind {} tokens", cache.length()), rank, tp, last,
                   last.shape(), split::Columns::Whole);
      }
    });
    RunRecord record;
    record.gradients = wholes.tensors();
    return record;
  };
  const auto whole_vocabulary = [](Communicator& tp) {
    const GptParts serial = gpt2_parts();
    GptParts parts = tensor_parallel_parts(tp);
    parts.table = serial.table, parts.embedding = serial.embedding, parts.head = serial.head;
    parts.loss = serial.loss;
    return parts;
  };
  const RunRecord one = logits(1, [](Communicator&) { return gpt2_parts(); });
  for (const int t : {2, 3, 4})
    EXPECT_TRUE(same_run(one, logits(t, whole_vocabulary), kSameRunF64)) << t << " ranks";
}

}  // namespace
}  // namespace aisc
