#include "07_sequence_parallel/key_ring.h"

#include "06_tensor_parallel/linear_products.h"

namespace aisc {

int KeyRing::origin(int turn) const {
  return (cp_.rank() - turn % cp_.size() + cp_.size()) % cp_.size();
}

TokenPart KeyRing::tokens(int turn, const Pass& pass) const {
  return token_part(form_, origin(turn), cp_.size(), pass.sequence);
}

KeyRing::Coming KeyRing::pass_on(const ConstBuffer& x, int turn, const Pass& pass) const {
  const ConstView& view = x.view();
  const Shape arrives = view.shape().with(-2, tokens(turn, pass).count);
  Coming coming{Tensor(arrives, view.dtype(), view.device()), {}};
  const int N = cp_.size();
  const Transfer transfers[] = {{.in = x.share(),
                                 .to = (cp_.rank() + 1) % N,
                                 .out = coming.x,
                                 .from = (cp_.rank() + N - 1) % N}};
  coming.arrival = cp_.exchange(transfers);  // comm: x, of one rank's tokens
  return coming;
}

void KeyRing::wait_for(Work& work) const { aisc::wait_for(rank_, work, name_); }

Tensor KeyRing::sum_round(ConstView x, DType sums, const Pass& pass,
                          const Gradient& gradient) const {
  Tensor arrived;  // owns x behind turn 0
  // Of the x that is here: the sum over the ranks that had it before, on its way.
  Coming from_before;
  for (int turn = 0; turn < size(); ++turn) {
    Coming next;
    if (turn + 1 < size()) next = pass_on(x, turn + 1, pass);
    const Tensor dx(x.shape(), sums, x.device(), Purpose::Workspace);
    gradient(turn, x, dx);
    if (turn > 0) {
      wait_for(from_before.arrival);
      ops::add(dx, dx, from_before.x);
    }
    from_before = pass_on(dx, turn + 1, pass);  // in the end to its own rank
    if (turn + 1 < size()) {
      wait_for(next.arrival);
      arrived = std::move(next.x);
      x = arrived;
    }
  }
  wait_for(from_before.arrival);
  return std::move(from_before.x);
}

}  // namespace aisc
