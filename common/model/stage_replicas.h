// One rank a stage in place of a mesh.
#pragma once

#include <memory>

#include "common/comm/mesh.h"
#include "common/comm/plan.h"
#include "common/comm/rank.h"
#include "common/model/machine.h"

namespace aisc {

// The network of every `stride`-th rank of a machine, where those between do the same at the same
// time: each has its share of the cards of its node, at all times.
Network network_of_every(const Machine& machine, int stride);

// True: every group of tp, and of ep x tp, lies in one node, or in the same number of whole ones.
bool are_alike(const MeshShape& shape, const Machine& machine);

// A mesh of dp * pp * tp ranks of which one rank a stage runs, in virtual time and without numbers,
// where all others do the same as the one of their stage: data-parallel replicas with equal shares
// of a batch, parts of layers, and experts that all ranks send equally many rows.
class StageReplicas {
 public:
  // `stage` is one of pp ranks that were launched on network_of_every(machine, dp * tp). Throws
  // Error for cp above 1, and for tp or ep whose groups lie in one node here and in two there
  // (are_alike). Rank and machine must outlive it, and it what it makes.
  // `plans` are those of the stages' launch.
  StageReplicas(const Rank& stage, const MeshShape& shape, const Machine& machine,
                PlanTable plans = default_plans());
  ~StageReplicas();

  // Of all ranks. Its own collectives, which are of a few bytes, are taken by the ranks of each
  // stage, then by the stages; it sums and waits, and throws Error for anything else.
  Communicator& world() { return *world_; }
  // Its directions: those of a stage are replicas (replicas.h), each on its links as if it were
  // alone there; that of the pipeline is the launched ranks. Collective among these.
  std::unique_ptr<Mesh> mesh();

 private:
  const Rank stage_;
  const MeshShape shape_;
  const Network tp_network_, dp_network_, experts_network_;
  const PlanTable plans_;
  std::unique_ptr<Communicator> world_;
};

}  // namespace aisc
