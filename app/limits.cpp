#include "app/limits.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {
namespace {

double gib(double bytes) { return bytes / (1 << 30); }

}  // namespace

void require_memory(const MemoryRequest& request, std::int64_t available) {
  const TrainConfig& config = request.config;
  const TrainConfig::Bytes one = config.needed_bytes(request.all_ranks);
  // Tokens and targets in I32: all windows, and the rank's own in parts.
  const double windows = 2.0 * 2 * sizeof(std::int32_t) *
                         static_cast<double>(request.eval_windows * config.model.context);
  const double model = request.ranks * one.model,
               data = request.ranks * (one.activations + windows);
  const auto free = static_cast<double>(available);
  if (model + data <= free) return;
  fail(fmt::format(
      "this run needs about {:.1f} GiB of memory, {:.1f} for weights, gradients and optimizer and "
      "{:.1f} for activations and data, on {} rank{}; {:.1f} GiB are free: lower {}",
      gib(model + data), gib(model), gib(data), request.ranks, request.ranks == 1 ? "" : "s",
      gib(free),
      model > free ? "--layers, --width or --ranks"
                   : "--batch, --context or --eval-windows, or raise --micro-batches"));
}

}  // namespace aisc
