// Which rank does which part of the model: the coordinates of data, pipeline, context, tensor and
// expert parallelism, and a communicator for each direction.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/comm/communicator.h"

namespace aisc {

// Degrees. Ranks are numbered with tp fastest, then cp, then dp, then pp slowest:
//   rank = ((pp_index * dp + dp_index) * cp + cp_index) * tp + tp_index,
// Megatron-LM's order, so that the chattiest groups lie inside a node. ep divides dp.
struct MeshShape {
  int dp = 1, pp = 1, cp = 1, tp = 1, ep = 1;
  int ranks() const { return dp * pp * cp * tp; }
};

// A rank's place: its index in each direction. ep: its index within its group of ep ranks, which
// are neighbours in dp; expert_dp: which of the dp / ep such groups.
struct MeshPlace {
  int dp = 0, pp = 0, cp = 0, tp = 0, ep = 0, expert_dp = 0;
};
MeshPlace place_of(int rank, const MeshShape& shape);

// Throws Error naming the values if a degree is below 1, ep does not divide dp, or the product is
// not `ranks`.
void check_mesh(const MeshShape& shape, int ranks);

// A table of all ranks and their places, with the groups of each direction below it.
// ranks_per_node > 0 marks where nodes begin and which groups leave a node.
std::string mesh_table(const MeshShape& shape, int ranks_per_node = 0);

enum class MeshGroup {
  Tp,
  Cp,
  Dp,
  Pp,
  Ep,
  Experts,
  Gradients,
  TensorGradients,
  ExpertGradients,
  Embedding
};

class Mesh {
 public:
  // Collective: all ranks of `world` with the same shape. Throws as check_mesh does.
  Mesh(Communicator& world, const MeshShape& shape);
  // With groups from elsewhere than world.split(), as where few ranks run in place of many
  // (model/stage_replicas.h). nullptr: this rank is in none, as those between the first and the
  // last stage are in no Embedding.
  using MakeGroup = std::function<std::unique_ptr<Communicator>(MeshGroup group)>;
  Mesh(Communicator& world, const MeshShape& shape, const MakeGroup& make);
  ~Mesh();

  const MeshShape& shape() const { return shape_; }
  const MeshPlace& place() const { return place_; }
  bool is_first_stage() const { return place_.pp == 0; }
  bool is_last_stage() const { return place_.pp == shape_.pp - 1; }

  // Ranks that differ in one index only, in its order.
  Communicator& tp() { return *tp_; }
  Communicator& cp() { return *cp_; }
  Communicator& dp() { return *dp_; }
  Communicator& pp() { return *pp_; }
  Communicator& ep() { return *ep_; }
  // Ranks that differ in ep and tp only, tp fastest: together they hold all experts, each as many
  // whole ones.
  Communicator& experts() { return *experts_; }

  // The groups that gradients are summed over: dp x cp for what every such rank holds a copy of
  // (all parameters but experts), dp x cp x tp for what tensor ranks hold a copy of, too, but see a
  // part of the tokens of, expert_dp x cp for an expert's.
  Communicator& gradients() { return *gradients_; }
  Communicator& tensor_gradients() { return *tensor_gradients_; }
  Communicator& expert_gradients() { return *expert_gradients_; }
  // First and last stage, which share the tied embedding; one rank where pp is 1. nullptr on the
  // stages between.
  Communicator* embedding() { return embedding_.get(); }

 private:
  MeshShape shape_;
  MeshPlace place_;
  std::unique_ptr<Communicator> tp_, cp_, dp_, pp_, ep_, experts_, gradients_, tensor_gradients_,
      expert_gradients_, embedding_;
};

}  // namespace aisc
