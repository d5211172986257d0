// Training whose activations are encoded, and what it keeps between forward and backward.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "10_model_compression/more/encoded_activations.h"
#include "common/core/range.h"
#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/run_layout.h"
#include "tests/train/small_run.h"

namespace aisc::encoded_runs {

// The length of the difference, as a share of the length of what is expected.
inline double distance(const std::vector<double>& found, const std::vector<double>& expected) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    off += (found.at(i) - expected[i]) * (found.at(i) - expected[i]);
    all += expected[i] * expected[i];
  }
  return std::sqrt(off / all);
}

// Dropout between layers whose masks are kept, a byte an element.
inline StepParts kept_masks(StepParts parts = {}) {
  parts.masks = Masks::Stored;
  return parts;
}

inline TrainConfig with_dropout(DType dtype) {
  TrainConfig config;
  config.model = odd_config(dtype, 0.1);
  config.gradient_dtype = dtype;
  config.batch = 6;
  config.steps = 10;
  config.learning_rate = 3e-3;
  return config;
}

// Losses, gradients and weights of every step, to the last bit.
inline ::testing::AssertionResult same_bits_of_runs(const std::vector<RunRecord>& found,
                                                    const std::vector<RunRecord>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found.at(i).losses != expected[i].losses)
      return ::testing::AssertionFailure() << "losses up to step " << i << " differ";
    for (const auto& [name, gradient] : expected[i].gradients)
      if (found[i].gradients.at(name) != gradient)
        return ::testing::AssertionFailure()
               << "step " << i << ": the gradient of " << name << " differs: a lossless encoding "
               << "gave something else back than it took";
    if (found[i].weights != expected[i].weights)
      return ::testing::AssertionFailure() << "step " << i << ": weights differ";
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<double> losses_of(SavedAs how, int steps) {
  TestWorld world;
  const TrainConfig config = small_config(DType::F32);
  Trainer trainer(world.rank, config, encoded_activations(how, {}, {.least_bytes = 0}));
  const std::vector<std::uint8_t> text = words(500);
  const BatchSampler data(text, config.model.context, config.seed);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(trainer.step(data).loss);
  return losses;
}

// Between forward and backward of a GPT whose masks are kept.
struct EncodedBytes {
  std::int64_t kept = 0;     // of activations, but for tokens and targets
  std::int64_t peak = 0;     // of all, up to the end of backward
  std::int64_t dropped = 0;  // numbers that the first dropout made 0
};
enum class HasNumbers { Yes, No };
inline EncodedBytes bytes_between(const GptConfig& config, std::int64_t samples, SavedAs how,
                                  HasNumbers numbers = HasNumbers::Yes,
                                  GptParts parts = gpt2_parts()) {
  parts.masks = Masks::Stored;
  EncodedBytes bytes;
  const Machine machine = find_machine("limitless");
  const bool meta = numbers == HasNumbers::No;
  launch(on_machine(machine, 1, {.meta = meta}), [&](const Rank& rank) {
    const Model model = make_gpt(rank, config, parts);
    ParameterStore store(rank.device, make_units(model), {});
    store.initialize(1);
    const Tensor tokens =
        meta ? Tensor({samples, config.context}, DType::I32, rank.device)
             : random_tokens(rank.device, samples, config.context, config.vocabulary, 3);
    EncodedActivations hook(rank, model, how, {.least_bytes = 0});
    LayerHook* const hooks[] = {&hook};
    const auto live = [&] { return rank.device.ledger()[Purpose::Activations].live_bytes; };
    const std::int64_t before = live();
    rank.device.reset_peaks();
    std::vector<Saved> saved(model.layers.size() + 1);
    Tensor x = tokens.share();
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      x = forward_layer(model, i, std::move(x), saved[i], {}, hooks);
      if (i == 2 && !meta)
        for (const double number : to_doubles(x)) bytes.dropped += number == 0 ? 1 : 0;
    }
    const std::int64_t ids = static_cast<std::int64_t>(saved[1].bytes());  // of positions
    const std::int64_t logits = static_cast<std::int64_t>(x.bytes());
    bytes.kept = live() - before - ids - logits;
    const double loss = model.loss->forward(std::move(x), tokens, saved.back(), {});
    EXPECT_GE(loss, 0);
    backward_layers(model, model.loss->backward(saved.back(), 1), {saved.data(), saved.size() - 1},
                    {}, hooks);
    bytes.peak = rank.device.ledger().total.peak_bytes;
  });
  return bytes;
}

}  // namespace aisc::encoded_runs
