#include "02_cpu_offload/saved_to_host.h"

#include <fmt/format.h>

#include <limits>

#include "common/core/error.h"
#include "common/model/host.h"

namespace aisc {

bool is_worth_moving(const Tensor& saved, std::int64_t least_bytes) {
  return saved && is_floating(saved.dtype()) && saved.count() > 0 &&
         static_cast<std::int64_t>(saved.bytes()) >= least_bytes;
}

SavedToHost::SavedToHost(const Rank& rank, const Model& model, const SavedToHostOptions& options)
    : rank_(rank),
      stays_(model.loss ? model.layers.size() - 1 : std::numeric_limits<std::size_t>::max()),
      options_(options),
      host_(host_of(rank).memory()) {}

bool SavedToHost::moves(std::size_t layer) const {
  return layer != stays_ && (options_.layers.empty() || options_.layers.at(layer));
}

SavedToHost::MovedLayer SavedToHost::send(std::span<Tensor> saved) {
  MovedLayer layer{.saved = saved.size()};
  // An address names a storage: those of one layer are all alive, and differ.
  std::map<const void*, std::size_t> number;
  for (std::size_t i = 0; i < saved.size(); ++i) {
    if (!is_worth_moving(saved[i], options_.least_bytes)) continue;
    const auto [found, is_first] = number.try_emplace(saved[i].view().raw(), layer.storages.size());
    if (is_first) {
      Moved& moved = layer.storages.emplace_back();
      moved.device = saved[i].share();
      moved.host = Tensor(saved[i].shape(), saved[i].dtype(), host_);
      moved.copy = rank_.device.copy_async(moved.host, moved.device, Queue::ToHost);
    }
    layer.storages[found->second].places.emplace_back(i, saved[i].shape());
    saved[i] = Tensor();
  }
  return layer;
}

void SavedToHost::leave(MovedLayer& layer) const {
  if (layer.is != MovedLayer::Is::Going) return;
  for (Moved& moved : layer.storages) {
    moved.copy.wait();
    moved.device = Tensor();
  }
  layer.is = MovedLayer::Is::Away;
}

void SavedToHost::recall(MovedLayer& layer) const {
  leave(layer);
  if (layer.is != MovedLayer::Is::Away) return;
  for (Moved& moved : layer.storages) {
    moved.device = Tensor(moved.host.shape(), moved.host.dtype(), rank_.device);
    moved.copy = rank_.device.copy_async(moved.device, moved.host, Queue::ToDevice);
  }
  layer.is = MovedLayer::Is::Coming;
}

void SavedToHost::after_forward(std::size_t layer, const Pass& pass, Saved& saved) {
  if (!pass.training) return;
  const auto span = rank_.trace.span("communication", "activations to the host");
  // LAB 02.4: to the host
  // > What a layer above saved has had the time of this layer to go. Now its memory is needed.
  // > send() takes what is saved, and leaves empty tensors; a layer's is kept by micro-batch and
  // > layer in moved_.
  for (auto& [key, going] : moved_) leave(going);
  if (moves(layer)) moved_.insert_or_assign({pass.micro_batch, layer}, send(saved.tensors()));
  // END LAB 02.4
}

void SavedToHost::before_backward(std::size_t layer, const Pass& pass, Saved& saved) {
  const auto span = rank_.trace.span("communication", "activations from the host");
  auto node = moved_.extract({pass.micro_batch, layer});
  if (node) recall(node.mapped());
  const auto below = layer > 0 ? moved_.find({pass.micro_batch, layer - 1}) : moved_.end();
  if (options_.prefetch && below != moved_.end()) recall(below->second);
  if (!node) return;
  MovedLayer& its = node.mapped();
  const std::span<Tensor> tensors = saved.tensors();
  if (tensors.size() != its.saved)
    fail(fmt::format("SavedToHost: layer {} has {} saved tensors, {} after its forward", layer,
                     tensors.size(), its.saved));
  for (Moved& moved : its.storages) {
    moved.copy.wait();
    for (const auto& [index, shape] : moved.places)
      tensors[index] = moved.device.share().reshaped(shape);
  }
}

StepParts activations_on_host(StepParts parts, const SavedToHostOptions& options) {
  parts.hooks.push_back([options](const Rank& rank, const Model& model, Mesh* /*mesh*/) {
    return std::make_unique<SavedToHost>(rank, model, options);
  });
  return parts;
}

}  // namespace aisc
