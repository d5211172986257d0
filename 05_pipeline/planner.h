// What the layers of a model take, measured or computed from a machine's figures, and what a cut of
// them means for a GPT.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/rank.h"
#include "common/model/machine.h"
#include "common/nn/gpt.h"

namespace aisc {

struct LayerSeconds {
  double forward = 0, backward = 0;
};

// Adds up the seconds that pass on the rank's clock in each layer. On an emulated device they are
// those of its machine, on a real one they are measured: the timer waits for the device before it
// reads the clock. List it as the last hook, so that no other hook's time is counted. The rank's
// device and clock must outlive it.
class LayerTimer final : public LayerHook {
 public:
  LayerTimer(const Rank& rank, std::size_t layers) : rank_(rank), seconds_(layers) {}

  void before_forward(std::size_t layer, const Pass& pass) override;
  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void after_backward(std::size_t layer, const Pass& pass) override;

  const std::vector<LayerSeconds>& seconds() const { return seconds_; }
  double now() const;  // after all that the device was asked for

 private:
  const Rank rank_;
  double begin_ = 0;
  std::vector<LayerSeconds> seconds_;
};

// Of each layer in one micro-batch, forward and backward. It runs once: measurements are the median
// of several, and that is the caller's. tokens, targets (B, T) I32; as forward_backward it adds to
// the gradients, or overwrites them in the first micro-batch of a step, which moves fewer bytes.
// The last layer has the seconds of the loss in it, so that the sum is all the time that passes.
// Throws Error for a model without layers or without a loss.
std::vector<LayerSeconds> layer_seconds(const Rank& rank, const Model& model, const Tensor& tokens,
                                        const Tensor& targets, const Pass& pass = {});

// The same of a GPT on a machine that need not be there, by its figures: of a micro-batch of so
// many samples and tokens that is not the first of its step, so that gradients are added to. Its
// capacity does not count, since a model that is cut need not fit into one device. Throws Error for
// sizes that make_gpt refuses, and for less than one sample or token or more than the context has.
std::vector<LayerSeconds> gpt_layer_seconds(const Machine& machine, const GptConfig& config,
                                            std::int64_t samples, std::int64_t tokens,
                                            const GptParts& parts = gpt2_parts());

// A GPT's costs for cut(): of each block, forward and backward together. Stages begin and end at
// blocks, since BlockRange puts embedding, positions and dropout to the first block, and the last
// norm, the head and the loss to the last one: these two have their seconds in them. `layers` are
// all of make_gpt's, each block one of them. Throws Error where they are not config.layers + 5.
std::vector<double> block_seconds(const GptConfig& config, std::span<const LayerSeconds> layers);

// The same where embedding and head may be stages alone: config.layers + 2 parts, the embedding
// with positions and dropout, each block, and the last norm with the head and the loss.
std::vector<double> part_seconds(const GptConfig& config, std::span<const LayerSeconds> layers);

// The blocks of each stage for make_gpt: begins[s] .. begins[s + 1], the last up to the end:
//   gpt_stages(config, cut(block_seconds(config, layers), stages))
// Throws Error where the begins are not 0 first, rising, and blocks of the model.
std::vector<BlockRange> gpt_stages(const GptConfig& config, std::span<const std::int64_t> begins);
// The same of begins among those parts: cut(part_seconds(config, layers), stages).
std::vector<BlockRange> part_stages(const GptConfig& config, std::span<const std::int64_t> begins);

}  // namespace aisc
