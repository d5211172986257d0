// What passes between the stages of a pipeline while ranks run their lists: activations forward,
// their gradients backward.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "05_pipeline/handovers.h"
#include "05_pipeline/link_code.h"
#include "common/comm/rank.h"

namespace aisc {

// The two directions have communicators of their own: in one, a rank that posts receives in another
// order than its neighbour sends would take a gradient for an activation.
struct StageComms {
  // Collective: all ranks of `pp`, which are those of a pipeline in the order of the schedule's.
  explicit StageComms(Communicator& pp);

  std::unique_ptr<Communicator> forward, backward;
};

// The messages of one run of a schedule, on one rank.
//
// A send is over when it has been received (rendezvous), so the rank does not wait for it: what is
// sent lives until it has arrived. A receive is posted one ahead, in each direction: while an
// action computes, the input of the next one arrives.
class StageLinks {
 public:
  // What the stage of `action`, a forward, takes as its input; the gradient of that has the same
  // shape. Asked one message ahead.
  using InputShape = std::function<Shape(int stage, int micro_batch)>;
  // All live longer than this.
  StageLinks(const Rank& rank, StageComms& comms, const Handovers& handovers,
             const InputShape& shape, DType dtype, const LinkCodes& codes = {});

  // True: action number `position` of this rank takes another stage's result. It may be of a stage
  // of the same rank: then send() handed it over and receive() returns it.
  bool receives(std::size_t position) const { return sources_[position].has_value(); }
  // Blocks until it is there. Called for each that receives, in the order of the list.
  Tensor receive(std::size_t position);
  // The result of an action: to the action that takes it, if there is one. Does not block.
  void send(std::size_t position, Tensor result);
  void finish();  // waits until everything has been received

 private:
  struct Way {
    Communicator* comm;
    // Of what goes to other ranks and comes from them.
    std::shared_ptr<const LinkCode> code;
    std::vector<std::size_t> positions;  // of what is received from other ranks, in order
    std::size_t posted = 0;              // so many of them
    struct Coming {
      Tensor tensor;
      Work work;
    };
    std::deque<Coming> coming = {};
    std::deque<Work> sent = {};
  };
  Way& way(std::size_t position);
  void post(Way& way);  // the next receive, if there is one

  const Rank rank_;
  const Handovers& handovers_;
  const InputShape& shape_;
  const DType dtype_;
  const int self_;
  std::vector<std::optional<ActionAt>> sources_;  // by position
  CpuDevice unbooked_;                            // what is sent in virtual time lies here
  Way forward_, backward_;
  std::vector<Tensor> handed_over_;  // by position of the action that takes it, on this rank
};

}  // namespace aisc
