#include "11_gpt_3d/train_sizes.h"

#include <fmt/format.h>

#include <memory>

#include "05_pipeline/pipelined.h"
#include "11_gpt_3d/placement.h"
#include "11_gpt_3d/step_of.h"
#include "app/recorded_flags.h"
#include "app/run_checkpoint.h"
#include "common/core/error.h"
#include "formats/safetensors.h"

namespace aisc {

std::int64_t heads_given(const Options& options) {
  return options.given.contains("heads") ? options.train.model.heads : 0;
}

void require_stages(const Options& options) {
  parse_order(options.order);
  plans_of(options);
  step_of(options);
  if (options.train.pp > 1)
    stages_of(options.train.model, options.train.pp * options.chunks());  // are there so many?
}

void complete_sizes(Options& options, const Task& task,
                    const std::function<void(const std::string&)>& say) {
  GptConfig& model = options.train.model;
  if (!options.init.empty()) {
    const Safetensors weights(options.init);
    const std::unique_ptr<const WeightsFormat> format = task.weights();
    const GptConfig file = format->config(weights, heads_given(options));
    if (heads_given(options) == 0) say(format->remark(weights, file));
    const auto take = [&](const char* flag, auto& value, const auto& found) {
      if (options.given.contains(flag) && value != found)
        fail(fmt::format("--{} {}: {} has {}", flag, value, options.init, found));
      value = found;
    };
    take("layers", model.layers, file.layers);
    take("heads", model.heads, file.heads);
    take("width", model.width, file.width);
    take("vocabulary", model.vocabulary, file.vocabulary);
    take("encoder-layers", model.encoder_blocks, file.encoder_blocks);
    if (file.experts.count > 0) {  // else a model with some may begin with it
      take("experts", model.experts.count, file.experts.count);
      take("moe-every", model.experts.every, file.experts.every);
      take("router", model.experts.router, file.experts.router);
      take("shared-expert", model.experts.shared, file.experts.shared);
    }
    if (!options.given.contains("context")) model.context = file.context;  // may be shorter
  }
  const std::int64_t needed = task.vocabulary();
  if (model.vocabulary == 0) model.vocabulary = needed;
  if (model.vocabulary < needed)
    fail(options.resume.empty()
             ? fmt::format("--vocabulary {}: the corpus has {} different tokens", model.vocabulary,
                           needed)
             : fmt::format("the model in {} has {} tokens, the corpus {} different ones",
                           options.resume, model.vocabulary, needed));
  options.train.validate(options.ranks);
  require_stages(options);
  task.require_enough(model);
}

void require_same_model(const Checkpoint& checkpoint, const Options& options) {
  const std::string config = RunState::from_json(checkpoint.state, checkpoint.path).config;
  for (const ChangedFlag& change : changed_flags(config, options.to_json()))
    for (const char* fixed : {"layers", "heads", "width", "context", "vocabulary", "experts",
                              "moe-every", "router", "shared-expert", "encoder-layers"})
      if (change.flag == fixed)
        fail(fmt::format("--{} {}: the model in {} has {}", change.flag, change.now,
                         checkpoint.path, change.before));
}

bool one_runs_for_all(const Options& options) {
  return !options.onebit_adam() && options.sharding.by != "owners" && options.sharding.group == 0 &&
         options.ep_node == 0;
}

PlannedStep plan_of(const Options& options) {
  // What ranks average by unequal shares depends on how many samples each has.
  const bool alike = one_runs_for_all(options) && options.data_parallel.average_every == 0;
  return plan_step(options.train, options.ranks, step_of(options), alike,
                   blank_samples(options).get());
}

}  // namespace aisc
