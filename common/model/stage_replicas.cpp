#include "common/model/stage_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/core/error.h"
#include "common/model/replicas.h"

namespace aisc {
namespace {

class World final : public Communicator {
 public:
  World(const Rank& stage, const MeshShape& shape, const Network& network, PlanTable plans)
      : Communicator(stage.world.rank() * shape.dp * shape.tp, shape.ranks(), "world"),
        stages_(stage.world),
        of_a_stage_(make_replicas(shape.dp * shape.tp, network, stage, std::move(plans))) {}

 private:
  Work do_collective(Collective c) override {
    if (c.call.op != CommOp::AllReduce && c.call.op != CommOp::Barrier) refuse(c.call);
    for (Communicator* ranks : {of_a_stage_.get(), &stages_}) {
      if (c.call.op == CommOp::Barrier)
        ranks->barrier();
      else
        ranks->all_reduce(c.out.view(), c.call.reduce).wait();
    }
    return {};
  }

  std::unique_ptr<Communicator> do_split(int, int, std::string) override {
    refuse({.op = CommOp::Split});
  }
  Work do_exchange(const Call& call, std::span<const Transfer>) override { refuse(call); }
  Work do_plan(Collective c, Plan) override { refuse(c.call); }

  [[noreturn]] void refuse(const Call& call) const {
    fail(where(call.op) + "one rank a stage runs in place of all");
  }

  Communicator& stages_;
  const std::unique_ptr<Communicator> of_a_stage_;
};

const MeshShape& checked(const Rank& stage, const MeshShape& shape, const Machine& machine) {
  check_mesh(shape, shape.ranks());
  if (shape.cp > 1)
    fail(fmt::format("mesh: one rank a stage may run where cp is 1, found {}", shape.cp));
  if (stage.world.size() != shape.pp)
    fail(fmt::format("mesh: {} ranks run, expected one for each of {} stages", stage.world.size(),
                     shape.pp));
  if (!are_alike(shape, machine))
    fail(fmt::format(
        "mesh: tp {} and ep {} on nodes of {}: one rank may run for all where groups of "
        "tp and of ep * tp lie alike, expected divisors or multiples",
        shape.tp, shape.ep, machine.ranks_per_node));
  machine.network(shape.ranks());  // are there so many?
  return shape;
}

}  // namespace

Network network_of_every(const Machine& machine, int stride) {
  Network network = machine.network(1);
  network.ranks_per_node = std::max(1, machine.ranks_per_node / stride);
  network.cards_per_node = std::max(1, machine.cards_per_node / stride);
  // Where several of those between share a card, each has a part of it.
  const double sharers =
      static_cast<double>(std::min(stride, machine.ranks_per_node)) / machine.cards_per_node;
  network.card.seconds_per_byte *= std::max(1.0, sharers);
  return network;
}

bool are_alike(const MeshShape& shape, const Machine& machine) {
  const auto are = [node = machine.ranks_per_node](int group) {
    return node % group == 0 || group % node == 0;
  };
  return are(shape.tp) && are(shape.ep * shape.tp);
}

StageReplicas::StageReplicas(const Rank& stage, const MeshShape& shape, const Machine& machine,
                             PlanTable plans)
    : stage_(stage),
      shape_(checked(stage, shape, machine)),
      tp_network_(network_of_every(machine, 1)),
      dp_network_(network_of_every(machine, shape.tp)),
      experts_network_(network_of_every(machine, shape.ep * shape.tp)),
      plans_(std::move(plans)),
      world_(std::make_unique<World>(stage, shape, tp_network_, plans_)) {}

StageReplicas::~StageReplicas() = default;

std::unique_ptr<Mesh> StageReplicas::mesh() {
  const auto replicas = [&](int size, const Network& network, const char* name) {
    return make_replicas(size, network, stage_, plans_, name);
  };
  const auto stages = [&](bool here, const char* name) {
    const int rank = stage_.world.rank();
    return stage_.world.split(here ? 0 : -1, rank, name);
  };
  return std::make_unique<Mesh>(
      *world_, shape_, [&](MeshGroup group) -> std::unique_ptr<Communicator> {
        switch (group) {
          case MeshGroup::Tp:
            return replicas(shape_.tp, tp_network_, "tp");
          case MeshGroup::Experts:
            return replicas(shape_.ep * shape_.tp, tp_network_, "experts");
          case MeshGroup::Dp:
            return replicas(shape_.dp, dp_network_, "dp");
          case MeshGroup::Gradients:
            return replicas(shape_.dp, dp_network_, "grad");
          case MeshGroup::TensorGradients:
            return replicas(shape_.dp * shape_.tp, tp_network_, "tensor_grad");
          case MeshGroup::ExpertGradients:
            return replicas(shape_.dp / shape_.ep, experts_network_, "expert_grad");
          case MeshGroup::Pp:
            return stages(true, "pp");
          case MeshGroup::Embedding: {
            const int rank = stage_.world.rank();
            return stages(rank == 0 || rank == shape_.pp - 1, "embedding");
          }
          case MeshGroup::Cp:
            return replicas(1, tp_network_, "cp");
          case MeshGroup::Ep:
            return replicas(shape_.ep, dp_network_, "ep");
        }
        return nullptr;
      });
}

}  // namespace aisc
