#include "05_pipeline/stage_links.h"

#include <cstring>
#include <utility>

namespace aisc {

StageComms::StageComms(Communicator& pp)
    : forward(pp.split(0, pp.rank(), "pp forward")),
      backward(pp.split(0, pp.rank(), "pp backward")) {}

StageLinks::StageLinks(const Rank& rank, StageComms& comms, const Handovers& handovers,
                       const InputShape& shape, DType dtype, const LinkCodes& codes)
    : rank_(rank),
      handovers_(handovers),
      shape_(shape),
      dtype_(dtype),
      self_(comms.forward->rank()),
      forward_{.comm = comms.forward.get(), .code = codes.forward, .positions = {}},
      backward_{.comm = comms.backward.get(), .code = codes.backward, .positions = {}} {
  const std::size_t actions = handovers.schedule().actions[index(self_)].size();
  handed_over_.resize(actions);
  for (std::size_t i = 0; i < actions; ++i) {
    sources_.push_back(handovers.source_of({self_, i}));
    if (sources_[i] && sources_[i]->rank != self_) way(i).positions.push_back(i);
  }
  post(forward_);
  post(backward_);
}

StageLinks::Way& StageLinks::way(std::size_t position) {
  return handovers_.action({self_, position}).kind == ActionKind::Forward ? forward_ : backward_;
}

// A gradient is of this stage's output: of the next stage's input.
void StageLinks::post(Way& way) {
  if (way.posted == way.positions.size()) return;
  const std::size_t position = way.positions[way.posted++];
  const Action& a = handovers_.action({self_, position});
  const int stage = handovers_.schedule().stage_of[index(self_)][index(a.chunk)] +
                    (a.kind == ActionKind::Forward ? 0 : 1);
  const Shape shape = shape_(stage, a.micro_batch);
  Tensor tensor(way.code ? way.code->coded(shape) : shape, way.code ? DType::U8 : dtype_,
                rank_.device);
  Work work = way.comm->recv(tensor, sources_[position]->rank);  // comm: b s h elements
  way.coming.push_back({std::move(tensor), std::move(work)});
}

Tensor StageLinks::receive(std::size_t position) {
  if (sources_[position]->rank == self_) return std::exchange(handed_over_[position], Tensor());
  Way& from = way(position);
  Way::Coming next = std::move(from.coming.front());
  from.coming.pop_front();
  post(from);
  const auto span = rank_.trace.span("communication", "wait for a stage");
  next.work.wait();
  return from.code ? from.code->decode(next.tensor, dtype_) : std::move(next.tensor);
}

void StageLinks::send(std::size_t position, Tensor result) {
  const auto target = handovers_.target_of({self_, position});
  if (!target) return;
  if (target->rank == self_) {
    handed_over_[target->position] = std::move(result);
    return;
  }
  Way& along = way(position);
  if (along.code) result = along.code->encode(result);
  const Device& device = rank_.device;
  if (device.kind() == DeviceKind::Meta) {  // nobody reads the memory, and nothing has to keep it
    along.sent.push_back(along.comm->send(result.view(), target->rank));  // comm: as below
    return;
  }
  // What has arrived needs no memory. In virtual time only the end may ask whether it has: what is
  // kept until then is a copy in nobody's books, which are those of a run without numbers.
  if (rank_.clock.is_virtual() && device.is_host()) {
    Tensor copy(result.shape(), result.dtype(), unbooked_);
    std::memcpy(copy.view().raw(), result.view().raw(), result.bytes());
    result = std::move(copy);
  }
  along.sent.push_back(along.comm->send(result, target->rank));  // comm: b s h elements
  while (!rank_.clock.is_virtual() && !along.sent.empty() && along.sent.front().done()) {
    along.sent.front().wait();
    along.sent.pop_front();
  }
}

void StageLinks::finish() {
  const auto span = rank_.trace.span("communication", "wait for a stage");
  for (Way* way : {&forward_, &backward_}) {
    for (Work& work : way->sent) work.wait();
    way->sent.clear();
  }
}

}  // namespace aisc
