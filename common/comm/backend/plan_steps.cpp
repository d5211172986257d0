#include "common/comm/backend/plan_steps.h"

#include <cstring>
#include <utility>

#include "common/comm/backend/reduce.h"

namespace aisc {

std::byte* bytes_of(const ConstView& view) {
  if (view && view.device().kind() == DeviceKind::Meta) return nullptr;
  return static_cast<std::byte*>(const_cast<void*>(view.raw()));
}

TransferShares::TransferShares(std::span<const Transfer> transfers) {
  for (const Transfer& t : transfers) {
    ins_.push_back(t.in.share());
    outs_.push_back(t.out.share());
  }
}

void TransferShares::release() {
  ins_.clear();
  outs_.clear();
}

PlanSteps::PlanSteps(Collective collective, std::shared_ptr<const Plan> plan)
    : collective_(std::move(collective)), plan_(std::move(plan)) {
  if (plan_->scratch_count == 0) return;
  const ConstView& in = collective_.in.view();
  Device& device = in.count() > 0 ? in.device() : collective_.out.view().device();
  scratch_ = Tensor({plan_->scratch_count}, collective_.call.dtype, device, Purpose::Communication);
}

void PlanSteps::release() {
  collective_ = {};
  scratch_ = {};
}

std::byte* PlanSteps::data(const Piece& piece) const {
  const auto at = [&](const ConstView& memory) {
    std::byte* const begin = bytes_of(memory);
    return begin ? begin + static_cast<std::size_t>(piece.begin) * size_of(collective_.call.dtype)
                 : nullptr;
  };
  switch (piece.where) {
    case Piece::Where::In:
      return at(collective_.in.view());
    case Piece::Where::Out:
      return at(collective_.out.view());
    default:
      return piece.count == 0 ? nullptr : at(scratch_);
  }
}

std::size_t PlanSteps::bytes(const Piece& piece) const {
  return static_cast<std::size_t>(piece.count) * size_of(collective_.call.dtype);
}

Message PlanSteps::message(const PlanAction& action) const {
  const bool is_send = action.kind == PlanAction::Kind::Send;
  const Piece& piece = is_send ? action.from : action.to;
  return {is_send, action.peer, data(piece), piece.count, collective_.call.dtype};
}

void PlanSteps::make(const PlanAction& action) const {
  if (is_message(action)) return;
  std::byte *to = data(action.to), *from = data(action.from);
  if (!to || !from) return;
  const Call& call = collective_.call;
  if (action.kind == PlanAction::Kind::Reduce)
    reduce_into(to, from, action.to.count, call.dtype, call.reduce);
  else if (to != from)
    std::memmove(to, from, bytes(action.to));
}

}  // namespace aisc
