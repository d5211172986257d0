#include "10_model_compression/more/encoded_activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "10_model_compression/more/eight_bits.h"
#include "10_model_compression/more/packed_bits.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

constexpr std::size_t kNoLayer = std::numeric_limits<std::size_t>::max();

std::int64_t bytes_in(const Tensor& x) { return static_cast<std::int64_t>(x.bytes()); }

// A norm's statistics are of one dimension. Attention's log-sum-exp, (B, H, T), is saved right
// behind its output, (B, T, C), which has more columns than there are heads.
bool is_statistic(const Shape& x, const Shape& before) {
  if (x.rank() <= 1) return true;
  return x.rank() == 3 && before.rank() == 3 && x[0] == before[0] && x[2] == before[1] &&
         4 * x.count() <= before.count();
}

// As many as it has in `saved`: nobody else keeps the memory.
bool is_all_here(std::span<const Tensor> saved, const Tensor& x) {
  const auto here = std::count_if(saved.begin(), saved.end(), [&](const Tensor& other) {
    return other && other.view().raw() == x.view().raw();
  });
  return here == x.owners();
}

DType short_type(SavedAs how) { return how == SavedAs::Bf16 ? DType::BF16 : DType::F16; }

}  // namespace

SavedAs parse_saved_as(std::string_view text) {
  if (text == "plain") return SavedAs::Plain;
  if (text == "lossless") return SavedAs::Lossless;
  if (text == "bf16") return SavedAs::Bf16;
  if (text == "f16") return SavedAs::F16;
  if (text == "f8") return SavedAs::F8;
  fail(fmt::format("saved as '{}': expected plain, lossless, bf16, f16 or f8", text));
}

EncodedActivations::EncodedActivations(const Rank& rank, const Model& model, SavedAs how,
                                       const EncodedActivationsOptions& options)
    : rank_(rank),
      stays_(model.loss ? model.layers.size() - 1 : kNoLayer),
      how_(how),
      options_(options) {
  if (!options_.layers.empty() && options_.layers.size() != model.layers.size())
    fail(fmt::format("EncodedActivations: choices of {} layers, the model has {}",
                     options_.layers.size(), model.layers.size()));
}

bool EncodedActivations::encodes(std::size_t layer) const {
  return how_ != SavedAs::Plain && layer != stays_ &&
         (options_.layers.empty() || options_.layers[layer]);
}

bool EncodedActivations::is_for(std::span<const Tensor> saved, std::size_t i) const {
  const Tensor& x = saved[i];
  if (!x || x.count() == 0 || bytes_in(x) < options_.least_bytes) return false;
  if (x.dtype() != DType::U8 && !is_floating(x.dtype())) return false;
  const bool rounds = is_floating(x.dtype()) && how_ != SavedAs::Lossless;
  const Shape before = i > 0 && saved[i - 1] ? saved[i - 1].shape() : Shape{};
  return !(rounds && is_statistic(x.shape(), before));
}

EncodedActivations::Form EncodedActivations::form_of(const Tensor& x) const {
  if (x.dtype() == DType::U8) return Form::Bits;
  return how_ == SavedAs::Lossless ? Form::Sparse : how_ == SavedAs::F8 ? Form::F8 : Form::Short;
}

std::pair<Tensor, Tensor> EncodedActivations::encode(const Tensor& x, Form form) const {
  switch (form) {
    case Form::Bits:
      return {pack_mask(x), Tensor()};
    case Form::Sparse: {
      const std::int64_t values = nonzero_count(x);
      const auto bytes = values * static_cast<std::int64_t>(size_of(x.dtype()));
      if (bytes + packed_bytes(x.count()) >= bytes_in(x)) return {};
      SparseTensor sparse = to_sparse(x, values);
      return {std::move(sparse.values), std::move(sparse.bits)};
    }
    case Form::Short: {
      if (size_of(x.dtype()) <= size_of(short_type(how_))) return {};
      Tensor rounded(x.shape(), short_type(how_), x.device());
      ops::cast(rounded, x);
      return {std::move(rounded), Tensor()};
    }
    case Form::F8: {
      const std::int64_t scales = x.shape().rows() * ((x.shape()[-1] + 127) / 128);
      if (x.count() + 4 * scales >= bytes_in(x)) return {};
      F8Tensor f8 = to_f8(x, kE4M3, kRowBlocks);
      return {std::move(f8.codes), std::move(f8.scales)};
    }
  }
  return {};
}

Tensor EncodedActivations::decode(const Encoded& its, Tensor first, Tensor second) const {
  Tensor x(its.places[0].second, its.dtype, rank_.device);
  switch (its.form) {
    case Form::Bits:
      unpack_bits(x, first);
      break;
    case Form::Sparse:
      from_sparse(x, {.bits = std::move(second), .values = std::move(first)});
      break;
    case Form::Short:
      ops::cast(x, first);
      break;
    case Form::F8:
      from_f8(x, {.format = kE4M3,
                  .blocks = kRowBlocks,
                  .codes = std::move(first),
                  .scales = std::move(second)});
      break;
  }
  return x;
}

// Tensors are looked at while all are plain, and are then encoded one by one: beside the plain ones
// there is one encoded twin at a time.
void EncodedActivations::after_forward(std::size_t layer, const Pass& pass, Saved& saved) {
  if (!pass.training || !encodes(layer)) return;
  const auto span = rank_.trace.span("rounding", "what is saved, encoded");
  EncodedLayer all{.own = saved.size()};
  std::map<const void*, std::size_t> number;  // by storage; those of one layer are all alive
  const std::span<Tensor> tensors = saved.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_for(tensors, i) || !is_all_here(tensors, tensors[i])) continue;
    const auto [found, is_first] = number.try_emplace(tensors[i].view().raw(), all.storages.size());
    if (is_first)
      all.storages.push_back(
          {.places = {}, .dtype = tensors[i].dtype(), .form = form_of(tensors[i])});
    all.storages[found->second].places.emplace_back(i, tensors[i].shape());
  }
  std::erase_if(all.storages, [&](Encoded& its) {
    auto [first, second] = encode(saved.tensors()[its.places[0].first], its.form);
    if (!first) return true;
    for (const auto& place : its.places) saved.tensors()[place.first] = first.share();
    if (second) {
      its.second = saved.size();
      saved.push(std::move(second));
    }
    return false;
  });
  all.saved = saved.size();
  layers_.insert_or_assign({pass.micro_batch, layer}, std::move(all));
}

void EncodedActivations::before_backward(std::size_t layer, const Pass& pass, Saved& saved) {
  const auto node = layers_.extract({pass.micro_batch, layer});
  if (!node) return;
  const auto span = rank_.trace.span("rounding", "what was saved, decoded");
  const EncodedLayer& all = node.mapped();
  if (saved.size() != all.saved)
    fail(fmt::format("EncodedActivations: layer {} has {} saved tensors, {} after its forward",
                     layer, saved.size(), all.saved));
  const std::span<Tensor> tensors = saved.tensors();
  for (const Encoded& its : all.storages) {
    Tensor first = std::move(tensors[its.places[0].first]);
    for (const auto& place : its.places) tensors[place.first] = Tensor();
    Tensor second = its.second > 0 ? std::move(tensors[its.second]) : Tensor();
    const Tensor x = decode(its, std::move(first), std::move(second));
    for (const auto& [place, shape] : its.places) tensors[place] = x.share().reshaped(shape);
  }
  while (saved.size() > all.own) saved.pop();
}

StepParts encoded_activations(SavedAs how, StepParts parts,
                              const EncodedActivationsOptions& options) {
  if (how == SavedAs::Plain) return parts;
  parts.hooks.push_back([how, options](const Rank& rank, const Model& model, Mesh* /*mesh*/) {
    return std::make_unique<EncodedActivations>(rank, model, how, options);
  });
  return parts;
}

}  // namespace aisc
