// Activation checkpoints that all ranks of a group hold alike, cut into parts: P_a of ZeRO-R.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/comm/rank.h"
#include "common/nn/model.h"
#include "common/train/step_parts.h"

namespace aisc {

struct ActivationShardOptions {
  // Smaller tensors stay whole: a message for each costs more time than they cost memory.
  std::int64_t least_bytes = 4096;
};

// Partitioned activation checkpointing (Rajbhandari et al., "ZeRO", arXiv 1910.02054, section 6.1).
// Tensor parallelism splits the products of a block, but each of its ranks has the block's whole
// input, and remembers it. This hook keeps 1/n of it on each of the n ranks of `group` between
// forward and backward, and gathers the whole again when backward comes to the layer.
//
// What is cut: all that a layer saves, of floating types and of least_bytes or more. It must be the
// same on all ranks of the group: with layers that are split, use it with whole blocks that are
// recomputed, which save their input alone. Indices (tokens, targets) stay whole: the caller holds
// them anyway. A storage that a layer has saved several times is cut once, gathered once, and
// shared again afterwards; one that two layers save is cut for each. Memory is freed if nobody but
// the layer holds it.
//
// Bytes sent per rank, of a tensor of S bytes: (n-1)/n * S, once a micro-batch, in before_backward,
// which blocks. With n = 1 nothing happens.
class ActivationShards final : public LayerHook {
 public:
  // Both live longer than this.
  ActivationShards(const Rank& rank, Communicator& group,
                   const ActivationShardOptions& options = {});

  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override;
  // Throws Error naming the layer if `saved` is not as after_forward left it.
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;

 private:
  // A tensor of a layer's Saved that is cut.
  struct Cut {
    std::size_t index;
    std::size_t first;  // the index of the first tensor that has the same storage
    Shape shape;        // of the whole
  };
  struct CutLayer {
    std::size_t saved;  // so many tensors, cut or not
    std::vector<Cut> cuts;
  };

  bool is_cut(const Tensor& tensor) const;
  // This rank's part of a tensor, ceil(count / n) elements: part r of them all, in their order.
  Tensor shard_of(const Tensor& whole) const;
  // The parts of all ranks in `all`, (n * part.count()), in their order. Collective, and blocks.
  void gather(const Tensor& part, const Tensor& all) const;
  // The whole again, of this shape, of all ranks' parts. Collective, and blocks.
  Tensor whole_of(const Tensor& part, const Shape& shape) const;

  const Rank rank_;
  Communicator& group_;
  const ActivationShardOptions options_;
  // By layer and micro-batch: a pipeline has several under way.
  std::map<std::pair<std::size_t, int>, CutLayer> layers_;
};

// Of the tensor ranks of a mesh, in a model whose blocks are recomputed (TrainConfig::recompute).
StepParts shard_activations(StepParts parts, const ActivationShardOptions& options = {});

}  // namespace aisc
