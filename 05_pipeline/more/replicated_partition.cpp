#include "05_pipeline/more/replicated_partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/core/error.h"

namespace aisc {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

bool is_cost(double figure) { return figure >= 0 && std::isfinite(figure); }

// What a run of layers costs on so many machines, by sums up to each layer.
class Costs {
 public:
  Costs(std::span<const LayerProfile> layers, double bandwidth)
      : layers_(layers), bandwidth_(bandwidth), seconds_{0}, weight_bytes_{0} {
    if (layers.empty()) fail("profile: no layers, expected 1 or more");
    if (!(bandwidth > 0) || !std::isfinite(bandwidth))
      fail(fmt::format("profile: {} bytes per second, expected more than 0", bandwidth));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const LayerProfile& l = layers[i];
      if (!is_cost(l.seconds) || !is_cost(l.output_bytes) || !is_cost(l.weight_bytes))
        fail(
            fmt::format("profile: layer {} takes {} seconds and has {} output and {} "
                        "weight bytes, expected 0 or more of each",
                        i, l.seconds, l.output_bytes, l.weight_bytes));
      seconds_.push_back(seconds_.back() + l.seconds);
      weight_bytes_.push_back(weight_bytes_.back() + l.weight_bytes);
    }
  }

  std::size_t layers() const { return layers_.size(); }
  // T(begin .. end, machines)
  double stage(std::size_t begin, std::size_t end, std::size_t machines) const {
    const auto m = static_cast<double>(machines);
    const double compute = seconds_[end] - seconds_[begin];
    const double weights = weight_bytes_[end] - weight_bytes_[begin];
    return std::max(compute, 4 * (m - 1) / m * weights / bandwidth_) / m;
  }
  // 2 C of the boundary in front of layer `begin`.
  double boundary(std::size_t begin) const {
    return 2 * layers_[begin - 1].output_bytes / bandwidth_;
  }

 private:
  const std::span<const LayerProfile> layers_;
  const double bandwidth_;
  std::vector<double> seconds_, weight_bytes_;  // of the layers before the i-th
};

}  // namespace

double replicated_seconds(std::span<const LayerProfile> layers, double bandwidth,
                          std::span<const ReplicatedStage> stages) {
  const Costs costs(layers, bandwidth);
  double slowest = 0;
  std::int64_t begin = 0;
  for (const ReplicatedStage& stage : stages) {
    if (stage.begin != begin || stage.end <= begin || stage.end > std::ssize(layers) ||
        stage.replicas < 1)
      fail(
          fmt::format("replicated_seconds: a stage of layers {} to {} of {} on {} machines, "
                      "expected one or more from {} on, on 1 or more",
                      stage.begin, stage.end, layers.size(), stage.replicas, begin));
    const auto first = static_cast<std::size_t>(begin), end = static_cast<std::size_t>(stage.end);
    slowest = std::max(slowest, costs.stage(first, end, static_cast<std::size_t>(stage.replicas)));
    if (begin > 0) slowest = std::max(slowest, costs.boundary(first));
    begin = stage.end;
  }
  if (begin != std::ssize(layers))
    fail(
        fmt::format("replicated_seconds: stages of {} layers, there are {}", begin, layers.size()));
  return slowest;
}

std::vector<ReplicatedStage> cut_with_replicas(std::span<const LayerProfile> layers,
                                               double bandwidth, int machines) {
  const Costs costs(layers, bandwidth);
  if (machines < 1)
    fail(fmt::format("cut_with_replicas: {} machines, expected 1 or more", machines));
  struct Best {
    double seconds = kImpossible;
    std::size_t begin = 0, replicas = 0;  // of the last stage
  };
  const std::size_t L = costs.layers(), M = static_cast<std::size_t>(machines);
  std::vector<std::vector<Best>> best(L + 1, std::vector<Best>(M + 1));  // A(end, m)
  for (std::size_t end = 1; end <= L; ++end)
    for (std::size_t m = 1; m <= M; ++m) {
      Best& here = best[end][m];
      here = {costs.stage(0, end, m), 0, m};
      for (std::size_t begin = 1; begin < end; ++begin)
        for (std::size_t replicas = 1; replicas < m; ++replicas) {
          const double slowest = std::max({best[begin][m - replicas].seconds, costs.boundary(begin),
                                           costs.stage(begin, end, replicas)});
          if (slowest < here.seconds) here = {slowest, begin, replicas};
        }
    }
  std::vector<ReplicatedStage> stages;
  for (std::size_t end = L, m = M; end > 0;) {
    const Best& last = best[end][m];
    stages.push_back({static_cast<std::int64_t>(last.begin), static_cast<std::int64_t>(end),
                      static_cast<int>(last.replicas)});
    end = last.begin;
    m -= last.replicas;
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

}  // namespace aisc
