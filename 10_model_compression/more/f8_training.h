// Training whose products multiply numbers of 8 bits: E4M3 for values and weights, E5M2 for
// gradients (Micikevicius et al., "FP8 formats for deep learning", arXiv 2209.05433, section 3).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "10_model_compression/more/eight_bits.h"
#include "10_model_compression/more/largest_of_steps.h"
#include "common/train/step_parts.h"

namespace aisc {

// What is computed is exact: operands are rounded to F8 and kept in the model's type, which holds
// them exactly with their scales; products of two have at most 8 bits and are summed in F32, as
// tensor cores do. What it costs is not: a CPU multiplies BF16 or F32, and rounds in between, so
// that F8 here is slower and not faster, and saves no memory.
//
// On a GPU the plain linear layers, split over no ranks, with one scale for each tensor, multiply
// codes (more/f8_linear.h). All else, block scales, experts, head, norms, parts of tensor ranks, is
// rounded there and multiplied as BF16, as on the CPU.

// Where scales come from. Current: from the largest number of the tensor itself, which takes a pass
// over it before it is rounded. Delayed: from the last steps; what is beyond saturates. The first
// step, and one behind nothing but zeros, take the current one; so do passes that do not train.
// Histories are of each rank alone, and are not in checkpoints: they begin anew.
// Block: current, one for 1 x 128 numbers of values and gradients and for 128 x 128 of weights. A
// row's numbers then depend on nothing but the row: any split of a batch over micro-batches and
// ranks rounds the same.
enum class F8Scale { Tensor, Delayed, Block };

// Whose operands are in 8 bits. linears: those of attention and MLP, also of experts (what goes in
// and comes back, and the weights; what lies between an expert's two products stays). The others
// show what must stay longer: head, the logits; norms, the layer norms with their weights; router,
// its weights and what it sees, which is what its experts get.
struct F8Layers {
  bool linears = true, head = false, norms = false, router = false;
  bool operator==(const F8Layers&) const = default;
};

struct F8Options {
  F8Scale scale = F8Scale::Block;
  F8Layers layers = {};
  NumberFormat values = kE4M3, gradients = kE5M2;
  std::int64_t history = 1024;  // steps, of delayed scales
};

// "tensor", "delayed" or "block"; words of "linears,head,norms,router". Throw Error naming them.
F8Scale parse_f8_scale(std::string_view text);
F8Layers parse_f8_layers(std::string_view text);

// How numbers of one kind are rounded; of one tensor, for its history.
struct F8Kind {
  NumberFormat format;
  ScaleBlocks blocks;
  mutable LargestOfSteps seen;

  // That of x by what was seen in the steps before, or by x where nothing was; x is seen now. Waits
  // for a GPU, since histories are the host's.
  float delayed_scale(ConstView x, std::uint64_t step) const;
};

// A layer, whatever it is, whose input, weights and gradient are rounded before it sees them:
//
//   y = f(x', W')   dx = f_x(dy', W')   dW = f_W(dy', x')
//
// The layer keeps x' for its backward; W' lives as long as a pass, in memory of its own, and W is
// what the optimizer moves and others read. Gradients of biases sum dy'. Pushes nothing itself.
class F8Layer final : public Layer {
 public:
  struct Operands {
    bool x = true, dy = true;
    std::function<bool(const Parameter&)> weights;  // which of them
  };
  F8Layer(const Rank& rank, std::unique_ptr<Layer> inner, const F8Options& options,
          Operands operands);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return inner_->parameters(); }
  std::vector<Parameter*> borrows() override { return inner_->borrows(); }
  std::vector<Unit> units() override { return inner_->units(); }

 private:
  struct Weight {
    Parameter* parameter;
    F8Kind kind;
  };
  class Bound;

  void round(View out, ConstView x, const F8Kind& kind, const Pass& pass) const;
  Tensor rounded(Tensor x, const F8Kind& kind, const Pass& pass) const;
  std::vector<std::unique_ptr<Bound>> bind_rounded(const Pass& pass) const;

  const std::unique_ptr<Layer> inner_;
  const F8Options options_;
  const Operands operands_;
  F8Kind x_, dy_;
  std::vector<Weight> weights_;
};

// `parts`, split over ranks and with experts already, with F8Layers around those of options.layers,
// or F8Linears in their place. The parameters are the same.
GptParts f8_parts(GptParts parts, const F8Options& options);
// The same of a training run.
StepParts f8_training(const F8Options& options, StepParts parts = {});

}  // namespace aisc
