// Stages that are on several machines: PipeDream's partition.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aisc {

// A layer as PipeDream's profile knows it, for a minibatch.
struct LayerProfile {
  double seconds = 0;       // T_l: forward and backward
  double output_bytes = 0;  // of its activations, and of their gradient
  double weight_bytes = 0;  // |w_l|
};

// Layers begin .. end on so many machines, each of which takes every replicas-th minibatch.
struct ReplicatedStage {
  std::int64_t begin, end;
  int replicas;
  bool operator==(const ReplicatedStage&) const = default;
};

// Seconds a minibatch in steady state: of the slowest stage or of the slowest boundary (Harlap et
// al., "PipeDream", arXiv 1806.03377, section 3.2). A stage of layers i .. j on m machines takes
//   T(i..j, m) = 1/m max(sum T_l, sum W_l^m),   W_l^m = 4 (m-1)/m |w_l| / bandwidth:
// with a parameter server in shards each machine sends and receives gradients and weights of all
// shards but its own. The boundary behind layer i takes 2 C_i, C_i = output bytes of i / bandwidth:
// activations there, gradients back. A maximum and no sum: communication runs beside compute.
// bandwidth: bytes per second of a machine. Throws Error where the stages are not all layers in
// their order, one or more each on one machine or more, and as cut_with_replicas.
double replicated_seconds(std::span<const LayerProfile> layers, double bandwidth,
                          std::span<const ReplicatedStage> stages);

// The stages for which replicated_seconds is the least, on exactly so many machines: one stage on
// all of them is data parallelism, one machine each a straight pipeline. Of equally fast ones one
// is returned, data parallelism where that is one of them. By dynamic programming, of which
// A(j, m), the least for the layers up to j on m machines, is the table:
//   A(j, m) = min(T(1..j, m), min over i, m' of max(A(i, m - m'), 2 C_i, T(i+1..j, m'))).
// Throws Error for no layers, less than one machine, a bandwidth that is not positive, and a figure
// of a layer that is negative or not finite.
std::vector<ReplicatedStage> cut_with_replicas(std::span<const LayerProfile> layers,
                                               double bandwidth, int machines);

}  // namespace aisc
