// Batches of windows of a text in tokens. Which window a sample is depends on nothing but the seed
// and the sample's index in the whole run, so any number of ranks and micro-batches see the same
// samples.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/core/rng.h"
#include "common/core/tensor.h"
#include "common/data/tokens.h"

namespace aisc {

// B samples of T tokens. All of it is on one device, in I32; what a model does not need is empty.
struct Batch {
  Tensor tokens;         // (B, T); of a model of images these, (B, C, H, W), with `terms`
  Tensor targets;        // (B, T): of each place, -1 for none; or one for each of `picked`
  double terms = 0;      // how many targets the loss is a mean over; 0: as many as there are tokens
  Tensor lengths = {};   // (B): tokens from there on are padding
  Tensor segments = {};  // (B, T): which text of a pair a token is of
  // (N): the places b T + t that have a target; B T stands for one that is not here.
  Tensor picked = {};
  Tensor decoder = {};  // (B, T'): what a decoder reads beside the encoder's tokens

  double term_count() const { return terms > 0 ? terms : static_cast<double>(tokens.count()); }
  Batch share() const;  // one more owner of the same elements
  Batch copy_to(Device& device, Purpose purpose = Purpose::Activations) const;
};

// What a run learns from: sample i is a pure function of i. Step s of a run with a global batch of
// G samples consists of the samples [s G, (s + 1) G), however they are divided.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // Samples first_sample .. first_sample + count - 1. May be called from several threads.
  virtual Batch batch(Device& device, std::int64_t first_sample, std::int64_t count) const = 0;
  // Batch::terms of these samples, which are not made for it.
  virtual double terms(std::int64_t first_sample, std::int64_t count) const = 0;
  // What is not copied, and for how long it has to live, the class says.
  virtual std::unique_ptr<const SampleSource> copy() const = 0;
};

// Windows of T tokens, and as targets the token that follows each, drawn at random, with
// replacement. The tokens are not copied: the caller keeps them alive.
class BatchSampler final : public SampleSource {
 public:
  // Throws Error if there are less than context + 1 tokens, or context < 1.
  BatchSampler(TokenView tokens, std::int64_t context, std::uint64_t seed);

  // Where the window of sample i begins: a pure function of (seed, i), uniform over all windows.
  std::int64_t start(std::int64_t sample) const;
  Batch batch(Device& device, std::int64_t first_sample, std::int64_t count) const override;
  double terms(std::int64_t /*first_sample*/, std::int64_t count) const override {
    return static_cast<double>(count * context_);
  }
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<BatchSampler>(*this);
  }

 private:
  TokenView tokens_;
  std::int64_t context_;
  Philox random_;
};

// Windows of T tokens that are all 0, where sizes alone count: a step that is planned.
class BlankWindows final : public SampleSource {
 public:
  explicit BlankWindows(std::int64_t context);  // throws Error: context < 1

  Batch batch(Device& device, std::int64_t first_sample, std::int64_t count) const override {
    return windows_.batch(device, first_sample, count);
  }
  double terms(std::int64_t first_sample, std::int64_t count) const override {
    return windows_.terms(first_sample, count);
  }
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<BlankWindows>(*this);
  }

 private:
  std::shared_ptr<const std::vector<std::uint8_t>> zeros_;
  BatchSampler windows_;
};

// `count` windows at even distances, the first at the beginning and the last at the end of the
// text: always the same, for validation. They overlap where the text is short. Not copied, as
// there.
class EvenWindows final : public SampleSource {
 public:
  // Throws as BatchSampler does, and for a count < 1.
  EvenWindows(TokenView tokens, std::int64_t context, std::int64_t count);

  // Throws Error for others than windows 0 .. count - 1.
  Batch batch(Device& device, std::int64_t first, std::int64_t count) const override;
  double terms(std::int64_t /*first*/, std::int64_t count) const override {
    return static_cast<double>(count * context_);
  }
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<EvenWindows>(*this);
  }

 private:
  TokenView tokens_;
  std::int64_t context_, count_;
};
// All of them.
Batch even_windows(TokenView tokens, std::int64_t context, std::int64_t count, Device& device);

}  // namespace aisc
