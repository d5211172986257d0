#include "11_gpt_3d/compressed.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "08_moe/expert_parallel.h"
#include "10_model_compression/more/encoded_activations.h"
#include "10_model_compression/more/f8_training.h"
#include "10_model_compression/pruned_training.h"
#include "10_model_compression/scaled_step.h"
#include "10_model_compression/straight_through.h"
#include "10_model_compression/teacher.h"
#include "app/saved_model.h"
#include "app/weights_file.h"
#include "common/core/flags/command_line.h"

namespace aisc {
namespace {

// None: the loss is not scaled.
std::optional<LossScaleOptions> loss_scale_of(const Options& options) {
  const Options::Compression& c = options.compression;
  if (!options.has_dynamic_scale()) {
    const double scale = c.loss_scale == "auto" ? 1 : real_number("--loss-scale", c.loss_scale);
    return scale == 1 ? std::nullopt : std::optional(static_scale(scale));
  }
  LossScaleOptions rule = c.loss_scale == "deepspeed" ? deepspeed_scale() : pytorch_scale();
  const auto take = [](auto& value, auto given) {
    if (given != 0) value = given;
  };
  take(rule.initial, c.scale_init);
  take(rule.window, c.scale_window);
  take(rule.hysteresis, c.scale_hysteresis);
  take(rule.floor, c.scale_min);
  take(rule.growth, c.scale_growth);
  take(rule.back_off, c.scale_backoff);
  rule.validate();
  return rule;
}

// By default the first quarter of the run is for learning which weights matter, the last for the
// others to make up for those that went.
PruneSchedule pruning_of(const Options& options) {
  const Options::Compression& c = options.compression;
  const std::int64_t steps = options.train.steps;
  const std::int64_t begin = c.prune_begin > 0 ? c.prune_begin : steps / 4;
  const std::int64_t end = c.prune_end > 0 ? c.prune_end : std::max(begin + 1, 3 * steps / 4);
  return {.sparsity = c.sparsity, .begin = begin, .end = end, .rounds = c.prune_rounds};
}

MakeTeacher teacher_of(const Options& options) {
  const std::string path = weights_at(options.compression.teacher, [](const std::string&) {});
  const DType precision = options.train.model.dtype;
  return [path, precision](const Rank& rank) {
    const Safetensors file(path);
    GptConfig config = config_in(file);
    config.dtype = precision;
    StepParts parts;
    if (config.experts.count > 0) parts = expert_parallel({});
    if (rank.device.kind() == DeviceKind::Meta)
      return Teacher(rank, config, parts.with_experts(config, gpt2_parts(), nullptr));
    SavedModel saved(rank, file, precision, {.parts = std::move(parts)});
    return Teacher(saved.config, std::move(saved.model), std::move(saved.parameters));
  };
}

}  // namespace

StepParts compressed(const Options& options, StepParts parts) {
  const Options::Compression& c = options.compression;
  if (const auto rule = loss_scale_of(options)) parts.scale = [rule] { return scaled_step(*rule); };
  if (c.f8)
    parts =
        f8_training({.scale = parse_f8_scale(c.f8_scale), .layers = parse_f8_layers(c.f8_layers)},
                    std::move(parts));
  if (c.quantize_aware != "off")
    parts = quantize_aware({.bits = c.quantize_aware == "int4" ? 4 : 8}, std::move(parts));
  if (c.sparsity > 0) parts = pruned(std::move(parts), pruning_of(options));
  if (!c.teacher.empty())
    parts = distilled(options.train, teacher_of(options),
                      {.temperature = c.temperature, .hard = c.hard}, std::move(parts));
  return encoded_activations(parse_saved_as(c.saved_as), std::move(parts));
}

}  // namespace aisc
