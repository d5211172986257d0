// Cuts what layers save after forward, and gathers it before backward.
#include "04_sharding/activation_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "common/core/error.h"

namespace aisc {

ActivationShards::ActivationShards(const Rank& rank, Communicator& group,
                                   const ActivationShardOptions& options)
    : rank_(rank), group_(group), options_(options) {}

bool ActivationShards::is_cut(const Tensor& tensor) const {
  return tensor && is_floating(tensor.dtype()) && tensor.count() > 0 &&
         static_cast<std::int64_t>(tensor.bytes()) >= options_.least_bytes;
}

// Parts have the same length on all ranks: the whole is padded at its end, where it does not
// divide. 5 elements on 4 ranks: 0 1 | 2 3 | 4 . | . .
Tensor ActivationShards::shard_of(const Tensor& whole) const {
  // LAB 04.7: shard_of
  // > A part of the same length on all ranks; what of it lies behind the whole's end is 0. At hand
  // > are whole.device().copy(to, from) and zero(view), and parts, whole.view().flat(begin, count).
  const std::int64_t n = group_.size(), count = whole.count(), length = (count + n - 1) / n;
  const std::int64_t begin = std::min(count, group_.rank() * length);
  const std::int64_t used = std::min(length, count - begin);
  Tensor part({length}, whole.dtype(), whole.device());  // (ceil(count / n))
  if (used < length) whole.device().zero(part);
  if (used > 0) whole.device().copy(part.view().flat(0, used), whole.view().flat(begin, used));
  return part;
  // END LAB 04.7
}

// Nothing but the wait counts as communication.
void ActivationShards::gather(const Tensor& part, const Tensor& all) const {
  const auto span = rank_.trace.span("communication", "gather checkpoint");
  group_.all_gather(part, all).wait();  // comm: (n-1)/n of `all`, a part to each rank
}

Tensor ActivationShards::whole_of(const Tensor& part, const Shape& shape) const {
  // LAB 04.7: whole_of
  // > gather(part, all) fills `all`, which has room for all parts, padding included. Memory beside
  // > the whole is Purpose::Communication, and is taken only where parts do not divide it evenly.
  const std::int64_t padded = part.count() * group_.size();
  Tensor whole(shape, part.dtype(), part.device());
  if (padded == whole.count()) {
    gather(part, whole);
    return whole;
  }
  const Tensor all({padded}, part.dtype(), part.device(), Purpose::Communication);
  gather(part, all);
  part.device().copy(whole.view().reshaped({whole.count()}), all.view().flat(0, whole.count()));
  return whole;
  // END LAB 04.7
}

void ActivationShards::after_forward(std::size_t layer, const Pass& pass, Saved& saved) {
  if (group_.size() == 1 || !pass.training) return;
  const std::span<Tensor> tensors = saved.tensors();
  CutLayer cut{tensors.size(), {}};
  // An address names a storage: those that the loop has not come to are all alive, and differ.
  std::map<const void*, std::size_t> first_with;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_cut(tensors[i])) continue;
    const auto [found, is_first] = first_with.try_emplace(tensors[i].view().raw(), i);
    cut.cuts.push_back({i, found->second, tensors[i].shape()});
    tensors[i] = is_first ? shard_of(tensors[i]) : tensors[found->second].share();
  }
  layers_.insert_or_assign({layer, pass.micro_batch}, std::move(cut));
}

void ActivationShards::before_backward(std::size_t layer, const Pass& pass, Saved& saved) {
  const auto node = layers_.extract({layer, pass.micro_batch});
  if (!node) return;
  const CutLayer& cut = node.mapped();
  const std::span<Tensor> tensors = saved.tensors();
  if (tensors.size() != cut.saved)
    fail(fmt::format("ActivationShards: layer {} has {} saved tensors, {} after its forward", layer,
                     tensors.size(), cut.saved));
  for (const Cut& c : cut.cuts)  // the first of a storage comes before those that share it
    tensors[c.index] = c.first == c.index ? whole_of(tensors[c.index], c.shape)
                                          : tensors[c.first].share().reshaped(c.shape);
}

StepParts shard_activations(StepParts parts, const ActivationShardOptions& options) {
  parts.hooks.push_back([options](const Rank& rank, const Model& /*model*/, Mesh* mesh) {
    if (!mesh) fail("shard_activations: there is no mesh, pp, tp, cp and ep are 1");
    return std::make_unique<ActivationShards>(rank, mesh->tp(), options);
  });
  return parts;
}

}  // namespace aisc
