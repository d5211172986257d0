// A model larger than its device: weights and gradients lie on the host, and come to the device for
// the layer that needs them (vDNN, arXiv 1602.08124; with several ranks each host has a shard, as
// in ZeRO-Offload, arXiv 2101.06840, and ZeRO-Infinity, arXiv 2104.07857).
#pragma once

#include <memory>
#include <vector>

#include "02_cpu_offload/gradients_home.h"
#include "02_cpu_offload/residency.h"
#include "common/core/work.h"
#include "common/train/step_parts.h"

namespace aisc {

// Between two steps nothing of the model is on the device. A unit is copied to it before each layer
// that reads it, forward and backward; gradients go home (GradientsHome), where the optimizer
// works.
//
// With n ranks each has a slice of every unit on its host: a copy, and then the slices of all are
// gathered on the devices.
//
// Over the link, in bytes of a rank with Psi/n elements of weights of b bytes and gradients of g,
// m micro-batches: up to 2 m b Psi/n to the device, since the last layer's and the first one's
// stay where the direction turns, and m g Psi/n to the host; a tied table once more each way.
// Between ranks as ZeRO's stage 3: 3 m Psi (n - 1)/n elements. On the device at most the weights of
// two layers, the gradients of two, and, with ranks, a slice.
class HostWeights final : public Reducer {
 public:
  // A store padded for rank.world, without memory for values and gradients.
  HostWeights(const Rank& rank, const Model& model, ParameterStore& store,
              const ResidencyOptions& options = {});

  std::vector<OptimizerSlice> slices() const override;  // on the host
  bool divides() const override { return true; }
  bool joins_forward() const override { return true; }

  void begin() override { gradients_.begin(); }
  void before_forward(std::size_t layer, const Pass& pass) override;
  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override;
  // Throws Error for weight gradients that are deferred: their memory is on its way home.
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void after_backward(std::size_t layer, const Pass& pass) override;
  void finish() override;
  double norm(const MeshPlace& place) const override;

  bool is_here(std::size_t unit) const { return here_[unit]; }  // or on its way

 private:
  // A unit that is on its way to the device: its slice, whole where there is one rank.
  struct Coming {
    Tensor slice;
    Work copy;
  };
  Range own(std::size_t unit) const;
  void turn_to(const LayerTurn& turn, bool training);
  void fetch(std::size_t unit);
  void arrive(std::size_t unit);
  void evict(std::size_t unit);
  void release();

  const ResidencyOptions options_;
  const std::vector<LayerUnits> layers_;
  Tensor values_;               // this rank's slices of all units, on the host
  std::vector<bool> here_;      // by unit: on the device or on its way
  std::vector<Coming> coming_;  // by unit, until it has arrived
  Host& host_;
  GradientsHome gradients_;
};

// For a Trainer.
StepParts weights_on_host(StepParts parts = {}, const ResidencyOptions& options = {});

}  // namespace aisc
