// What all backends do alike that run exchanges and plans by messages of their own: which messages
// there are, where they lie, what follows when those of a step are over. How a message gets to its
// peer is the backend's.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/comm/backend/message.h"
#include "common/comm/plan.h"

namespace aisc {

// The memory of a view as messages hold it; of an input only read. Null where there is none (meta):
// then nothing moves.
std::byte* bytes_of(const ConstView& view);

// Calls add(const Message&) for each message of an exchange, in order. 0 elements are none.
template <class Add>
void add_messages(std::span<const Transfer> transfers, Add add) {
  for (const Transfer& t : transfers) {
    if (t.in.count() > 0)
      add(Message{true, t.to, bytes_of(t.in.view()), t.in.count(), t.in.dtype()});
    if (t.out.count() > 0)
      add(Message{false, t.from, bytes_of(t.out.view()), t.out.count(), t.out.dtype()});
  }
}

// Shares of the tensors of an exchange, while it is under way.
class TransferShares {
 public:
  explicit TransferShares(std::span<const Transfer> transfers);
  void release();

 private:
  std::vector<ConstBuffer> ins_;
  std::vector<Buffer> outs_;
};

// One rank's way through the steps of a plan, with the call's buffers and the plan's own memory.
class PlanSteps {
 public:
  // Allocates the plan's memory on the device of the call's buffers.
  PlanSteps(Collective collective, std::shared_ptr<const Plan> plan);
  void release();  // lets go of all memory

  // To be called at first, and whenever the messages of the posted step are over. Goes on from step
  // to step: `post` posts the messages of the step and says whether they are over already; `finish`
  // makes its copies and reductions. True if the plan is over; false if messages are under way:
  // then another thread may already be in the next call, and nothing is touched after `post`.
  //
  // The dissemination barrier of four ranks, on rank 0, has two steps: signal 1 and await 3, then
  // signal 2 and await 2. The first call posts step 0. If 3 has not signalled, it returns false;
  // when 3 has, the backend calls again: step 0 is finished, step 1 posted. If 2 has signalled by
  // then, step 1 is finished in the same call, which returns true.
  template <class Post, class Finish>
  bool advance(Post post, Finish finish) {
    for (;;) {
      if (is_posted_) {
        finish();
        ++step_;
        is_posted_ = false;
      }
      if (step_ == plan_->steps()) return true;
      is_posted_ = true;
      if (!post()) return false;
    }
  }
  bool has_begun() const { return is_posted_ || step_ > 0; }

  std::span<const PlanAction> actions() const { return plan_->step(step_); }  // of the step
  std::byte* data(const Piece& piece) const;  // null: 0 elements of the plan's own memory, or none
  std::size_t bytes(const Piece& piece) const;
  Message message(const PlanAction& action) const;  // of a send or a receive
  void make(const PlanAction& action) const;  // a copy or a reduction; a message is left alone

 private:
  Collective collective_;
  const std::shared_ptr<const Plan> plan_;
  Tensor scratch_;
  std::size_t step_ = 0;
  bool is_posted_ = false;
};

inline bool is_message(const PlanAction& action) {
  return action.kind == PlanAction::Kind::Send || action.kind == PlanAction::Kind::Recv;
}

}  // namespace aisc
