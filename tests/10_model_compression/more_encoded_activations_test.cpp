// What layers save is encoded behind their forward and comes back in front of their backward.
#include "10_model_compression/more/encoded_activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "02_cpu_offload/saved_to_host.h"
#include "common/model/emulated_device.h"
#include "tests/10_model_compression/encoded_runs.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

using encoded_runs::distance;
using encoded_runs::kept_masks;
using encoded_runs::same_bits_of_runs;

Model two_toy_layers(const Rank& rank) { return std::move(toy::Toy(rank, {{1}, {1}}).model); }

Tensor drawn_matrix(const Rank& rank, std::int64_t rows, std::int64_t columns, const char* name) {
  return random_tensor({rows, columns}, DType::F32, rank.device, name);
}

Tensor mask_of(const Rank& rank, std::int64_t count) {
  Tensor mask({count}, DType::U8, rank.device);
  for (std::int64_t i = 0; i < count; ++i)
    mask.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 3 == 0);
  return mask;
}

TEST(EncodedActivations, OneLayerByHand) {
  TestWorld world;
  const Rank& rank = world.rank;
  const Model model = two_toy_layers(rank);
  const Tensor plain = drawn_matrix(rank, 4, 100, "x");
  for (const auto& [how, bytes] : {std::pair{SavedAs::Plain, 1600 + 80},
                                   {SavedAs::Lossless, 1600 + 10},
                                   {SavedAs::Bf16, 800 + 10},
                                   {SavedAs::F16, 800 + 10},
                                   {SavedAs::F8, 400 + 4 * 4 + 10}}) {
    EncodedActivations hook(rank, model, how, {.least_bytes = 0});
    const NoLeak no_leak(rank.device);
    const std::int64_t before = rank.device.ledger()[Purpose::Activations].live_bytes;
    Saved saved;
    saved.push(plain.clone());
    saved.push(mask_of(rank, 80));
    saved.push(saved.tensors()[0].share().reshaped({20, 20}));  // the same memory
    hook.after_forward(0, {}, saved);
    EXPECT_EQ(saved.bytes(), bytes) << "400 numbers of 4 bytes, and 80 of a mask";
    EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Activations, before + bytes));
    hook.before_backward(0, {}, saved);
    ASSERT_EQ(saved.size(), 3u) << "the layer's backward pops what its forward pushed";
    EXPECT_EQ(saved.tensors()[0].view().raw(), saved.tensors()[2].view().raw());
    EXPECT_EQ(saved.pop().shape(), Shape({20, 20}));
    EXPECT_TRUE(same_bits(saved.pop(), mask_of(rank, 80)));
    const Tensor back = saved.pop();
    EXPECT_EQ(back.shape(), plain.shape());
    EXPECT_EQ(back.dtype(), DType::F32);
    const double error = distance(to_doubles(back), to_doubles(plain));
    const bool is_exact = how == SavedAs::Plain || how == SavedAs::Lossless;
    EXPECT_EQ(error == 0, is_exact);
    EXPECT_LT(error, how == SavedAs::F8 ? 0.05 : 0.005);
  }
}

TEST(EncodedActivations, ZerosGoWhereThatIsLess) {
  TestWorld world;
  const Rank& rank = world.rank;
  const Model model = two_toy_layers(rank);
  EncodedActivations hook(rank, model, SavedAs::Lossless, {.least_bytes = 0});
  const Tensor relu({8, 32}, DType::F32, rank.device);
  ops::relu(relu, drawn_matrix(rank, 8, 32, "before relu"));
  const std::vector<double> values = to_doubles(relu);
  const auto zeros = std::count(values.begin(), values.end(), 0.0);
  ASSERT_GT(zeros, 100);
  std::vector<double> few(256, 1);
  std::fill_n(few.begin(), 8, 0);  // 8 zeros of 4 bytes, and 32 bytes of bits
  Saved saved;
  saved.push(relu.clone());
  saved.push(from_doubles(few, {256}, DType::F32, rank.device));
  few[8] = 0;
  saved.push(from_doubles(few, {256}, DType::F32, rank.device));
  hook.after_forward(0, {}, saved);
  EXPECT_EQ(saved.bytes(), (4 * (256 - zeros) + 32) + 4 * 256 + (4 * (256 - 9) + 32))
      << "a ReLU's output; one whose zeros would save nothing, which stays; one that saves 4 bytes";
  EXPECT_EQ(saved.tensors()[1].count(), 256) << "as it was, where both forms are as many bytes";
  hook.before_backward(0, {}, saved);
  EXPECT_TRUE(same_bits(saved.pop(), from_doubles(few, {256}, DType::F32, rank.device)));
  saved.pop();
  EXPECT_TRUE(same_bits(saved.pop(), relu));
}

TEST(EncodedActivations, MicroBatchesUnderWayAreKeptApart) {
  TestWorld world;
  const Rank& rank = world.rank;
  const Model model = two_toy_layers(rank);
  for (const SavedAs how : {SavedAs::Lossless, SavedAs::Bf16, SavedAs::F8}) {
    EncodedActivations hook(rank, model, how, {.least_bytes = 0});
    std::vector<Saved> saved(3);
    const auto number = [](std::int64_t m, std::size_t i) { return i % 2 == 0 ? 0.0 : 1 << m; };
    for (int m = 0; m < 3; ++m) {
      std::vector<double> values(64);
      for (std::size_t i = 0; i < 64; ++i) values[i] = number(m, i);
      saved[index(m)].push(from_doubles(values, {4, 16}, DType::F32, rank.device));
      hook.after_forward(0, {.micro_batch = m}, saved[index(m)]);
    }
    for (const int m : {1, 0, 2}) {
      hook.before_backward(0, {.micro_batch = m}, saved[index(m)]);
      EXPECT_EQ(to_doubles(saved[index(m)].pop())[5], number(m, 5)) << "micro-batch " << m;
    }
  }
}

// Forward is as it was, so the first loss is. Gradients: the short types' steps are 2^-8, 2^-11,
// and 2^-4 of a number; what many of them are summed to is nearer.
TEST(EncodedActivations, RoundedLaterTheLossIsTheSameAndGradientsAreNear) {
  const TrainConfig config = encoded_runs::with_dropout(DType::F32);
  const auto plain = run_layout({.ranks = 1}, config, 1, kept_masks());
  for (const auto& [how, most] :
       {std::pair{SavedAs::Bf16, 0.01}, {SavedAs::F16, 0.002}, {SavedAs::F8, 0.1}}) {
    const auto found = run_layout({.ranks = 1}, config, 1,
                                  encoded_activations(how, kept_masks(), {.least_bytes = 0}));
    EXPECT_EQ(found[0].losses, plain[0].losses) << "no forward sees a rounded number";
    std::vector<double> all, expected;
    for (const auto& [name, gradient] : plain[0].gradients) {
      expected.insert(expected.end(), gradient.begin(), gradient.end());
      const auto& its = found[0].gradients.at(name);
      all.insert(all.end(), its.begin(), its.end());
    }
    const double off = distance(all, expected);
    EXPECT_GT(off, most / 100) << "nothing was rounded";
    EXPECT_LT(off, most);
  }
}

TEST(EncodedActivations, WithoutALossEveryStepIsTheSameByBits) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const char* recompute : {"none", "block", "attention"})
      for (const std::int64_t micro_batches : {1, 3}) {
        TrainConfig config = encoded_runs::with_dropout(dtype);
        config.recompute = Recompute::parse(recompute);
        config.micro_batches = micro_batches;
        EXPECT_TRUE(same_bits_of_runs(
            run_layout({.ranks = 1}, config, 3,
                       encoded_activations(SavedAs::Lossless, kept_masks(), {.least_bytes = 0})),
            run_layout({.ranks = 1}, config, 3, kept_masks())))
            << name_of(dtype) << ", recomputed: " << recompute << ", micro-batches "
            << micro_batches;
      }
}

// Hooks that are there already come after it: over the link goes what is encoded.
TEST(EncodedActivations, GoToTheHostEncoded) {
  const TrainConfig config = encoded_runs::with_dropout(DType::F64);
  const auto run = [&](SavedAs how, StepParts parts) {
    return run_layout({.ranks = 1}, config, 3,
                      encoded_activations(how, std::move(parts), {.least_bytes = 0}));
  };
  const auto on_host = [] { return activations_on_host(kept_masks(), {.least_bytes = 0}); };
  for (const SavedAs how : {SavedAs::Lossless, SavedAs::Bf16, SavedAs::F8})
    EXPECT_TRUE(same_bits_of_runs(run(how, on_host()), run(how, kept_masks())));
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    Model model = std::move(toy::Toy(rank, {{1}, {1}, {1}}).model);
    SavedToHost away(rank, model, {.least_bytes = 0});
    EncodedActivations hook(rank, model, SavedAs::Bf16, {.least_bytes = 0});
    LayerHook* const hooks[] = {&away, &hook};
    Saved saved;
    forward_layer(model, 0, random_tensor({10, 10}, DType::F64, rank.device, "x"), saved, {}, {});
    for (LayerHook* its : {hooks[1], hooks[0]}) its->after_forward(0, {}, saved);
    EXPECT_EQ(rank.device.copied().from_device, 2 * 100) << "100 numbers of 2 bytes";
    for (LayerHook* its : hooks) its->before_backward(0, {}, saved);
    EXPECT_EQ(saved.pop().dtype(), DType::F64);
  });
}

TEST(EncodedActivations, TrainingLearnsAllTheSame) {
  for (const SavedAs how : {SavedAs::Plain, SavedAs::Bf16, SavedAs::F8}) {
    const std::vector<double> losses = encoded_runs::losses_of(how, 40);
    EXPECT_LT(losses.back(), losses.front() - 2.5) << "loss behind 40 steps";
    EXPECT_NEAR(losses.back(), encoded_runs::losses_of(SavedAs::Plain, 40).back(), 0.05);
  }
}

// N tokens of C columns in F32. A block keeps 16 N C numbers in eight tensors: both norms' inputs
// and outputs, 3 and 1 of attention, 4 and 4 of the MLP; statistics; and two masks.
TEST(EncodedActivations, TheLedgerHoldsWhatTheFormulaSays) {
  const std::int64_t L = 2, B = 4, T = 16, H = 2, C = 32, N = B * T;
  const GptConfig config{.layers = L,
                         .heads = H,
                         .width = C,
                         .context = T,
                         .vocabulary = 50,
                         .vocabulary_multiple = 2,
                         .dropout = 0.125};
  const std::int64_t floats = L * 16 * N * C + N * C;  // and the last norm's input
  const std::int64_t statistics = 4 * (L * (4 * N + H * N) + 2 * N);
  const std::int64_t masks = (2 * L + 1) * N * C, head = 4 * N * C;
  const std::int64_t rows = L * 8 * N + N;  // none longer than 128
  const auto plain = encoded_runs::bytes_between(config, B, SavedAs::Plain);
  EXPECT_EQ(plain.kept, 4 * floats + statistics + masks + head);
  const auto kept = [&](SavedAs how) { return encoded_runs::bytes_between(config, B, how).kept; };
  EXPECT_EQ(kept(SavedAs::Bf16), 2 * floats + statistics + masks / 8 + head);
  EXPECT_EQ(kept(SavedAs::F16), 2 * floats + statistics + masks / 8 + head);
  EXPECT_EQ(kept(SavedAs::F8), floats + 4 * rows + statistics + masks / 8 + head);
  // Zeros are what the first dropout left, the first norm's input. Behind the next one a number is
  // 0 where both drop it: 1 of 64, too few to pay for bits.
  EXPECT_EQ(kept(SavedAs::Lossless), plain.kept - masks / 8 * 7 - (4 * plain.dropped - N * C / 8));
  EXPECT_GT(plain.dropped, N * C / 10);
}

TEST(EncodedActivationsGiven, WithoutNumbersBytesAreTheSame) {
  const GptConfig config{.layers = 2,
                         .heads = 2,
                         .width = 32,
                         .context = 16,
                         .vocabulary = 50,
                         .vocabulary_multiple = 2,
                         .dropout = 0.25};
  for (const SavedAs how : {SavedAs::Plain, SavedAs::Bf16, SavedAs::F8}) {
    const auto real = encoded_runs::bytes_between(config, 4, how);
    const auto meta = encoded_runs::bytes_between(config, 4, how, encoded_runs::HasNumbers::No);
    EXPECT_EQ(meta.kept, real.kept);
    EXPECT_EQ(meta.peak, real.peak);
  }
  const auto plain = encoded_runs::bytes_between(config, 4, SavedAs::Plain);
  const auto meta =
      encoded_runs::bytes_between(config, 4, SavedAs::Lossless, encoded_runs::HasNumbers::No);
  EXPECT_EQ(plain.kept - meta.kept, 5 * 64 * 32 / 8 * 7) << "masks alone: nobody knows zeros";
}

TEST(EncodedActivationsGiven, OthersStayAsTheyAre) {
  TestWorld world;
  const Rank& rank = world.rank;
  const Model model = two_toy_layers(rank);
  EncodedActivations hook(rank, model, SavedAs::Bf16, {.least_bytes = 400});
  const Tensor elsewhere = drawn_matrix(rank, 10, 10, "of another, too");
  Saved saved;
  const auto push = [&](const Shape& shape, DType dtype) {
    saved.push(Tensor(shape, dtype, rank.device));
  };
  push({2, 7, 48}, DType::F32);   // attention's output is encoded,
  push({2, 3, 7}, DType::F32);    // its log-sum-exp is not: too small here, anyway
  push({400}, DType::F32);        // a norm's statistics
  push({9, 11}, DType::F32);      // 396 bytes
  push({300}, DType::I32);        // ids
  push({40, 40}, DType::BF16);    // as short already
  saved.push(elsewhere.share());  // its memory would stay
  saved.push(Tensor());           // a mark of some layers
  hook.after_forward(0, {}, saved);
  EXPECT_EQ(saved.tensors()[0].dtype(), DType::BF16);
  for (const std::size_t i : {1, 2, 3, 6}) {
    EXPECT_EQ(saved.tensors()[i].dtype(), DType::F32) << "tensor " << i;
  }
  EXPECT_EQ(saved.size(), 8u);
  EncodedActivations small(rank, model, SavedAs::F16, {.least_bytes = 0});
  Saved core;
  core.push(Tensor({2, 7, 48}, DType::F32, rank.device));
  core.push(Tensor({2, 3, 7}, DType::F32, rank.device));
  small.after_forward(0, {}, core);
  EXPECT_EQ(core.tensors()[1].dtype(), DType::F32) << "a log-sum-exp, (B, H, T) behind (B, T, C)";
  // Not in evaluation, not in front of the loss, not in layers that were not chosen.
  EncodedActivations chosen(rank, model, SavedAs::Bf16,
                            {.least_bytes = 0, .layers = {false, true}});
  const auto type_behind = [&](EncodedActivations& its, std::size_t layer, const Pass& pass) {
    Saved one;
    one.push(Tensor({4, 4}, DType::F32, rank.device));
    its.after_forward(layer, pass, one);
    return one.tensors()[0].dtype();
  };
  EXPECT_EQ(type_behind(small, 0, {}), DType::F16);
  EXPECT_EQ(type_behind(small, 0, {.training = false}), DType::F32);
  EXPECT_EQ(type_behind(small, 1, {}), DType::F32) << "the layer in front of the loss";
  EXPECT_EQ(type_behind(chosen, 0, {}), DType::F32);
}

TEST(EncodedActivationsGiven, SaysWhatIsWrong) {
  TestWorld world;
  const Rank& rank = world.rank;
  const Model model = two_toy_layers(rank);
  EncodedActivations hook(rank, model, SavedAs::Bf16, {.least_bytes = 0});
  Saved saved;
  saved.push(drawn_matrix(rank, 2, 2, "x"));
  saved.push(drawn_matrix(rank, 2, 2, "y"));
  hook.after_forward(0, {}, saved);
  saved.pop();
  EXPECT_TRUE(error_says([&] { hook.before_backward(0, {}, saved); },
                         {"EncodedActivations: layer 0 has 1 saved tensors, 2 after its forward"}));
  EXPECT_TRUE(error_says([&] { EncodedActivations(rank, model, SavedAs::F8, {.layers = {true}}); },
                         {"EncodedActivations: choices of 1 layers, the model has 2"}));
  EXPECT_TRUE(error_says([] { parse_saved_as("f4"); },
                         {"saved as 'f4': expected plain, lossless, bf16, f16 or f8"}));
  EXPECT_EQ(parse_saved_as("lossless"), SavedAs::Lossless);
  EXPECT_EQ(parse_saved_as("f16"), SavedAs::F16);
  EXPECT_TRUE(encoded_activations(SavedAs::Plain, {}).hooks.empty());
}

}  // namespace
}  // namespace aisc
