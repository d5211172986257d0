#include "10_model_compression/pruned_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "10_model_compression/host_numbers.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

// What step() updates of a slice: F32 or F64.
View updated_weights(const Optimizer& optimizer, std::size_t slice) {
  const Tensor& master = optimizer.master(slice);
  return master ? master.view() : optimizer.slices()[slice].weight;
}

// How many of a matrix go: one always stays.
std::int64_t goes_of(std::int64_t count, double sparsity) {
  return std::min(pruned_count(sparsity, count), count - 1);
}

std::vector<std::uint32_t> keys_of(const View& weights) {
  return magnitude_keys(HostNumbers(weights).view());
}

}  // namespace

PrunedTraining::PrunedTraining(const Rank& rank, const Model& model, Mesh* mesh,
                               const PruneSchedule& schedule)
    : rank_(rank), mesh_(mesh), schedule_(schedule) {
  schedule.validate();
  for (const auto& layer : model.layers)
    for (const Parameter* p : layer->parameters())
      if (can_be_pruned(*p) && by_name_.try_emplace(p->name, matrices_.size()).second)
        matrices_.push_back({p->name, p->global_shape.count()});
}

void PrunedTraining::before(Optimizer& optimizer, std::int64_t step) {
  if (rank_.device.kind() == DeviceKind::Meta) return;
  if (parts_.empty()) find_parts(optimizer);
  // Steps that are skipped leave what is gone as it is. Before an earlier one, as before the first
  // that is seen, weights come from elsewhere.
  if (step < last_step_ || last_step_ < 0) find_gone(optimizer, step);
  last_step_ = step;
}

void PrunedTraining::after(Optimizer& optimizer, std::int64_t step) {
  if (rank_.device.kind() == DeviceKind::Meta) return;
  reached_ = behind_update(
      step + 1, schedule_, reached_, [&] { mask(optimizer); },
      [&](double sparsity) { prune(optimizer, sparsity); });
}

void PrunedTraining::find_parts(const Optimizer& optimizer) {
  const std::vector<OptimizerSlice>& slices = optimizer.slices();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (!slices[i].parameter) continue;
    const auto found = by_name_.find(slices[i].parameter->name);
    if (found == by_name_.end()) continue;
    parts_.push_back(
        {i, found->second, std::vector<std::uint8_t>(index(slices[i].weight.count()))});
  }
}

// Before the first round zeros are weights as any other.
void PrunedTraining::find_gone(const Optimizer& optimizer, std::int64_t step) {
  reached_ = sparsity_at(step, schedule_);
  for (Part& part : parts_) std::fill(part.kept.begin(), part.kept.end(), std::uint8_t{1});
  if (reached_ == 0) return;
  std::vector<std::int64_t> sums(2 * matrices_.size());  // of each matrix: zeros, elements
  for (Part& part : parts_) {
    prune_below(keys_of(updated_weights(optimizer, part.slice)), 1, part.kept);
    sums[2 * part.matrix] += std::count(part.kept.begin(), part.kept.end(), std::uint8_t{0});
    sums[2 * part.matrix + 1] += std::ssize(part.kept);
  }
  sum_over_ranks(sums);
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const std::int64_t zeros = sums[2 * i], copies = sums[2 * i + 1] / matrices_[i].count;
    if (zeros < copies * goes_of(matrices_[i].count, reached_)) {
      reached_ = 0;
      return;
    }
  }
}

void PrunedTraining::mask(const Optimizer& optimizer) const {
  for (const Part& part : parts_) {
    const HostNumbers weights(updated_weights(optimizer, part.slice));
    apply_mask(weights.view(), part.kept);
    weights.write_back();
    optimizer.round_master(part.slice);
  }
}

// Each matrix has a search of its own; all of them take a digit at a time, so that ranks add up one
// table a digit. The counts of the first digit are those of all keys: they say how many ranks have
// each element, which is how often every key is counted.
void PrunedTraining::prune(const Optimizer& optimizer, double sparsity) {
  std::vector<ThresholdSearch> searches(matrices_.size());
  constexpr int kSearchDigits = 4;
  for (int digit = 0; digit < kSearchDigits; ++digit) {
    std::vector<std::int64_t> counts(kDigits * matrices_.size());
    const auto of_matrix = [&](std::size_t i) {
      return std::span(counts).subspan(kDigits * i, kDigits);
    };
    for (const Part& part : parts_)
      count_digits(keys_of(updated_weights(optimizer, part.slice)), searches[part.matrix],
                   of_matrix(part.matrix));
    sum_over_ranks(counts);
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      if (digit == 0) searches[i].smaller = wanted(matrices_[i], of_matrix(i), sparsity);
      narrow(searches[i], of_matrix(i));
    }
  }
  for (Part& part : parts_)
    prune_below(keys_of(updated_weights(optimizer, part.slice)), searches[part.matrix].prefix,
                part.kept);
  mask(optimizer);
}

// How many of the keys that were counted shall go.
std::int64_t PrunedTraining::wanted(const Matrix& matrix, std::span<const std::int64_t> counts,
                                    double sparsity) {
  const std::int64_t counted = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (counted == 0 || counted % matrix.count != 0)
    fail(
        fmt::format("pruning {}: of its {} elements ranks have {} together, expected each element "
                    "as often as any other",
                    matrix.name, matrix.count, counted));
  const std::int64_t copies = counted / matrix.count;
  return goes_of(matrix.count, sparsity) * copies;
}

// The ranks that have this stage, its parts and its copies.
void PrunedTraining::sum_over_ranks(std::vector<std::int64_t>& counts) const {
  if (counts.empty()) return;
  const auto span = rank_.trace.span("communication", "pruning");
  if (!mesh_) {
    sum_of_all(rank_.world, counts);  // comm: 2 KiB a matrix: counts of a digit, in rounds
    return;
  }
  sum_of_all(mesh_->gradients(), counts);  // comm: likewise, of shards and copies
  sum_of_all(mesh_->tp(), counts);         // comm: likewise, of parts of layers
}

StepParts pruned(StepParts parts, const PruneSchedule& schedule) {
  schedule.validate();
  parts.update_hooks.push_back([schedule](const Rank& rank, const Model& model, Mesh* mesh) {
    return std::make_unique<PrunedTraining>(rank, model, mesh, schedule);
  });
  return parts;
}

PrunedWeights pruned_weights(const std::vector<OptimizerSlice>& slices) {
  PrunedWeights weights;
  for (const OptimizerSlice& slice : slices) {
    if (!slice.parameter || !can_be_pruned(*slice.parameter)) continue;
    const std::vector<std::uint32_t> keys = keys_of(slice.weight);
    weights.zeros += std::count(keys.begin(), keys.end(), 0u);
    weights.all += std::ssize(keys);
  }
  return weights;
}

}  // namespace aisc
