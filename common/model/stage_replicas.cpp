#include "common/model/stage_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/core/error.h"
#include "common/model/replicas.h"

namespace aisc {
namespace {

class StageReplicas final : public Communicator {
 public:
  StageReplicas(const Rank& stage, const MeshShape& shape, const Machine& machine)
      : Communicator(stage.world.rank() * shape.dp * shape.tp, shape.ranks(), "world"),
        stage_(stage),
        shape_(shape),
        tp_network_(network_of_every(machine, 1)),
        dp_network_(network_of_every(machine, shape.tp)),
        of_a_stage_(make_replicas(shape.dp * shape.tp, tp_network_, stage)) {}

 private:
  Work do_collective(Collective c) override {
    if (c.call.op != CommOp::AllReduce && c.call.op != CommOp::Barrier) refuse(c.call);
    for (Communicator* ranks : {of_a_stage_.get(), &stage_.world}) {
      if (c.call.op == CommOp::Barrier)
        ranks->barrier();
      else
        ranks->all_reduce(c.out.view(), c.call.reduce).wait();
    }
    return {};
  }

  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    if (name == "pp" || name == "embedding") return stage_.world.split(color, key, std::move(name));
    const auto replicas = [&](int size, const Network& network) {
      return make_replicas(size, network, stage_, default_plans(), name);
    };
    if (name == "tp") return replicas(shape_.tp, tp_network_);
    if (name == "dp" || name == "grad" || name == "expert_grad")
      return replicas(shape_.dp, dp_network_);
    return replicas(1, tp_network_);  // cp, ep
  }

  Work do_exchange(const Call& call, std::span<const Transfer>) override { refuse(call); }
  Work do_plan(Collective c, Plan) override { refuse(c.call); }

  [[noreturn]] void refuse(const Call& call) const {
    fail(where(call.op) + "one rank a stage runs in place of all");
  }

  const Rank stage_;
  const MeshShape shape_;
  const Network tp_network_, dp_network_;
  const std::unique_ptr<Communicator> of_a_stage_;
};

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
  return machine.ranks_per_node % shape.tp == 0 || shape.tp % machine.ranks_per_node == 0;
}

std::unique_ptr<Communicator> make_stage_replicas(const Rank& stage, const MeshShape& shape,
                                                  const Machine& machine) {
  check_mesh(shape, shape.ranks());
  if (shape.cp * shape.ep > 1)
    fail(fmt::format("mesh: one rank a stage may run where cp and ep are 1, found {} and {}",
                     shape.cp, shape.ep));
  if (stage.world.size() != shape.pp)
    fail(fmt::format("mesh: {} ranks run, expected one for each of {} stages", stage.world.size(),
                     shape.pp));
  if (!are_alike(shape, machine))
    fail(
        fmt::format("mesh: tp {} on nodes of {}: one rank may run for all where groups of tp lie "
                    "alike, expected a divisor or a multiple",
                    shape.tp, machine.ranks_per_node));
  machine.network(shape.ranks());  // are there so many?
  return std::make_unique<StageReplicas>(stage, shape, machine);
}

}  // namespace aisc
