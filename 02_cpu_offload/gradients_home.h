// Gradients that lie on the host: a layer's leave the device behind its backward (ZeRO-Offload,
// arXiv 2101.06840, section 4.1).
#pragma once

#include <span>
#include <vector>

#include "04_sharding/sharded_units.h"
#include "common/core/work.h"
#include "common/model/host.h"
#include "common/train/step_parts.h"

namespace aisc {

// What a layer adds to its gradients goes home behind the layer's backward, while the layer below
// computes, and is added up there. With n ranks it is scattered on the devices before, and each
// host has a slice of every unit.
//
// Over the link go m g Psi/n bytes of a rank, with Psi elements of g bytes and m micro-batches; a
// tied table's once more. On the device are at most the gradients of two layers.
class GradientsHome {
 public:
  // A store padded for rank.world, without memory for gradients.
  GradientsHome(const Rank& rank, ParameterStore& store);

  void begin();                 // of a step
  void bind(std::size_t unit);  // memory on the device, for what a layer is about to add
  void send(std::size_t unit);  // what it has added; one unit at a time is on its way
  void finish();                // all are at home, and units that nobody wrote to are 0

  View slices() const { return grads_; }  // this rank's of all units, on the host

 private:
  // Gradients of a layer on their way home.
  struct Going {
    Tensor slice;    // on the device
    Tensor arrived;  // on the host, to be added; empty: it goes to its place
    View place;
    Work copy;
  };
  void land();  // what is going

  const Rank rank_;
  ParameterStore& store_;
  Host& host_;
  Tensor grads_;
  std::vector<bool> written_;  // by unit: the host's gradient is of this step
  Going going_;
};

// Weights stay on the device, each rank has all of them; gradients go home, and the slices are
// updated there or here (HostUpdate). Between ranks as ZeRO's stage 2: (m + 1) Psi (n - 1)/n
// elements.
class HostGradients final : public Reducer {
 public:
  // A store padded for rank.world, without memory for gradients.
  HostGradients(const Rank& rank, const Model& model, ParameterStore& store);

  std::vector<OptimizerSlice> slices() const override;  // weights here, gradients on the host
  bool divides() const override { return true; }

  void begin() override { gradients_.begin(); }
  // Throws Error for weight gradients that are deferred: their memory is on its way home.
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void after_backward(std::size_t layer, const Pass& pass) override;
  void finish() override { gradients_.finish(); }
  double norm(const MeshPlace& place) const override;
  void updated() override { take_slices(); }
  void take_slices() override { gather_updated(rank(), store()); }

 private:
  const std::vector<LayerUnits> layers_;
  GradientsHome gradients_;
};

// norm_of_shards() of slices whose gradients lie on the host.
double norm_on_host(const Rank& rank, std::span<const OptimizerSlice> mine, const MeshPlace& place);
// Throws Error for weight gradients that are deferred.
void require_at_once(const Pass& pass);

// For a Trainer.
StepParts gradients_on_host(StepParts parts = {});

}  // namespace aisc
