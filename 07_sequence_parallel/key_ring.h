// A ring of ranks that share each sequence: what belongs to the tokens of one rank goes to the next
// one, turn by turn, until all ranks have had it.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "07_sequence_parallel/token_parts.h"
#include "common/nn/layer.h"

namespace aisc {

// Rank i of `cp`, which must outlive the ring, has token_part(form, i, N, pass.sequence). A round
// has N turns: in turn s a rank has what rank i - s had in turn 0.
class KeyRing {
 public:
  // `name`: what waiting is called in the trace.
  KeyRing(const Rank& rank, Communicator& cp, std::string name, ContextForm form)
      : rank_(rank), cp_(cp), name_(std::move(name)), form_(form) {}

  int size() const { return cp_.size(); }  // N
  // The rank whose things are here in a turn; and its tokens.
  int origin(int turn) const;
  TokenPart tokens(int turn, const Pass& pass) const;

  // x goes to the next rank; what comes has as many tokens (dimension -2) as those of a turn. Does
  // not block. A view's memory must stay until the arrival.
  struct Coming {
    Tensor x;
    Work arrival;
  };
  Coming pass_on(const ConstBuffer& x, int turn, const Pass& pass) const;
  void wait_for(Work& work) const;

  // The gradient of this rank's x, summed over all ranks, in the type `sums`. gradient(turn, x, dx)
  // writes the part that this rank has of the gradient of the x that is here. Both go round: x in
  // N - 1 exchanges beside the computing; the sum, a turn behind it, in N, of which the last brings
  // it home.
  using Gradient = std::function<void(int turn, ConstView x, View dx)>;
  Tensor sum_round(ConstView x, DType sums, const Pass& pass, const Gradient& gradient) const;

 private:
  Rank rank_;
  Communicator& cp_;
  std::string name_;
  ContextForm form_;
};

}  // namespace aisc
