#include "07_sequence_parallel/selective.h"

#include "common/nn/kept_bytes.h"

namespace aisc {

// Saved is in the end the input alone, or all that the core keeps and on top of it an empty tensor.
Tensor SelectiveCore::forward(Tensor x, Saved& saved, const Pass& pass) const {
  if (!saved.keeps()) return core_->forward(std::move(x), saved, pass);
  // LAB 07.8: selective recomputation
  // > pass.kept is null, or the budget: has_room() before, keep(bytes) with what the core has kept.
  // > A Saved for the core alone says how many bytes that is, Saved::nothing() forgets. What is
  // > pushed into `saved` at last?
  const bool tries = pass.kept && pass.kept->has_room();
  Saved of_core = tries ? Saved() : Saved::nothing();
  Tensor y = core_->forward(x.share(), of_core, pass);
  if (tries && pass.kept->keep(of_core.bytes())) {
    for (Tensor& tensor : of_core.tensors()) saved.push(std::move(tensor));
    saved.push(Tensor());
  } else {
    saved.push(std::move(x));
  }
  return y;
  // END LAB 07.8
}

Tensor SelectiveCore::backward(Tensor dy, Saved& saved, const Pass& pass) {
  Tensor x = saved.pop();
  // LAB 07.8: selective recomputation
  // > An empty x: all was kept, and what it took is the budget's again, give_back(bytes). Else the
  // > core runs forward once more, with a Pass whose recompute is true.
  if (!x) {
    const std::int64_t before = saved.bytes();
    Tensor dx = core_->backward(std::move(dy), saved, pass);
    pass.kept->give_back(before - saved.bytes());
    return dx;
  }
  Saved of_core;
  Pass again = pass;
  again.recompute = true;
  core_->forward(std::move(x), of_core, again);
  return core_->backward(std::move(dy), of_core, pass);
  // END LAB 07.8
}

StepParts selective_recomputation(StepParts parts) {
  parts.recomputed = [](const Rank& rank, std::unique_ptr<Layer> core) {
    return std::make_unique<SelectiveCore>(rank, std::move(core));
  };
  return parts;
}

}  // namespace aisc
