// Optimizers update slices of weights from their gradients and own whatever state that takes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/core/tensor.h"
#include "common/nn/flat_layout.h"

namespace aisc {

// A run of weights and its gradient: a whole parameter, or the part of one that a rank looks after.
struct OptimizerSlice {
  std::string name;
  View weight;    // (n), the model's type
  View gradient;  // (n), the weight's type or F32
  bool decay = false;
  // Elements begin .. begin + n of this parameter, as this rank has it; null: of none that is
  // known.
  const Parameter* parameter = nullptr;
  std::int64_t begin = 0;
};

// One slice a parameter: the serial program's choice.
std::vector<OptimizerSlice> slices_of(std::span<Parameter* const> parameters);

struct OptimizerStep {
  double learning_rate;
  double gradient_scale = 1;  // clipping and averaging, folded into the update
};

class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  // Updates every slice once; those of a parameter that is moved by sign (Parameter::sign_step) by
  // that, whatever the optimizer, and their gradients are 0 then.
  void step(const OptimizerStep& options);
  std::int64_t steps() const { return steps_; }  // taken so far
  // Goes on as if `steps` had been taken, after state() was filled with what it was then.
  void resume(std::int64_t steps) {
    steps_ = steps;
    resumed();
  }
  const std::vector<OptimizerSlice>& slices() const { return slices_; }
  // The copy of a slice's weights that step() updates, where these are of a shorter type; an empty
  // tensor elsewhere. Who fills weights from elsewhere fills it, too.
  const Tensor& master(std::size_t slice) const { return masters_[slice]; }
  void round_master(std::size_t slice) const;  // makes the weight of its master, where it has one

  // What must be saved to go on later, by name: "blocks.0.norm1.weight/m". Views into live state.
  struct State {
    std::string name;
    View value;
    const Parameter* parameter;  // of the slice; null: of none
    std::int64_t begin;
  };
  virtual std::vector<State> state() const = 0;
  // Likewise what each rank has of its own, under names that are the same on all ranks.
  virtual std::vector<State> own_state() const { return {}; }

 protected:
  // State lies on this device; null: each slice's where its weight is.
  explicit Optimizer(std::vector<OptimizerSlice> slices, Device* state = nullptr);

  // F32 (F64 where the weight is), one a slice.
  std::vector<Tensor> make_zeros(Device* state = nullptr) const;

  std::vector<OptimizerSlice> slices_;
  // The F32 copies of weights in a shorter type, one tensor a slice, empty where not needed.
  std::vector<Tensor> masters_;

 private:
  virtual void do_step(const OptimizerStep& options, std::int64_t step) = 0;
  virtual void resumed() {}  // weights and state were filled from elsewhere
  void step_by_sign(std::size_t slice);

  std::int64_t steps_ = 0;
};

// Adam with decoupled weight decay (Loshchilov and Hutter, 2019). 8 bytes of state per parameter
// for the moments, and 4 more for the master copy of weights in BF16 or F16: with 2 for the weight
// and 2 for its gradient the 16 bytes per parameter of mixed precision.
class AdamW final : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double weight_decay = 0.1;  // of the slices that ask for decay
  };
  AdamW(std::vector<OptimizerSlice> slices, const Options& options);
  std::vector<State> state() const override;

 private:
  void do_step(const OptimizerStep& options, std::int64_t step) override;

  Options options_;
  std::vector<Tensor> m_, v_;
};

// Stochastic gradient descent with momentum (Polyak's form, as PyTorch writes it).
class Sgd final : public Optimizer {
 public:
  struct Options {
    double momentum = 0;
    double weight_decay = 0;  // of the slices that ask for decay
  };
  Sgd(std::vector<OptimizerSlice> slices, const Options& options);
  std::vector<State> state() const override;

 private:
  void do_step(const OptimizerStep& options, std::int64_t step) override;

  Options options_;
  std::vector<Tensor> velocity_;
};

}  // namespace aisc
