#include "05_pipeline/pipelined.h"

#include <fmt/format.h>

#include <utility>

#include "05_pipeline/partition.h"
#include "05_pipeline/planner.h"
#include "05_pipeline/schedules.h"
#include "common/core/error.h"

namespace aisc {
namespace {

bool updates_on_its_way(const PipelineChoice& choice) { return choice.schedule == "pipedream"; }

class GptStages final : public Stages {
 public:
  GptStages(const Rank& rank, Mesh& mesh, const TrainConfig& config, const PipelineChoice& choice,
            const GptParts& whole)
      : rank_(rank),
        pp_(mesh.pp()),
        choice_(choice),
        schedule_(find_schedule(choice, config.pp, static_cast<int>(config.micro_batches))),
        model_(config.model),
        stage_input_(whole.stage_input) {
    if (updates_on_its_way(choice) && config.clip > 0)
      fail(
          fmt::format("pipeline: {} updates a stage while others compute, and cannot clip by the "
                      "norm of all: found clip {}, expected 0",
                      choice.schedule, config.clip));
    // A stage that is made again sends again: tensor ranks, which meet in it, have to decide alike,
    // and those of the last one keep logits of their rows of the table.
    if (choice.again != Again::Never && choice.keep_bytes > 0 &&
        config.model.table_rows() % config.tp != 0)
      fail(
          fmt::format("pipeline: a budget for what is kept, and a table of {} rows over {} tensor "
                      "ranks: expected a multiple, so that ranks keep the same",
                      config.model.table_rows(), config.tp));
    const std::int64_t parts = mesh.gradients().size() * config.micro_batches;
    if (updates_on_its_way(choice) && config.batch % parts != 0)
      fail(
          fmt::format("pipeline: {} updates by the mean over each micro-batch, which are equally "
                      "large: found a batch of {}, expected a multiple of {}",
                      choice.schedule, config.batch, parts));
    // A rank has as many runs of blocks as the schedule gives it stages: one, or its chunks.
    all_ = stages_of(config.model, schedule_.stages(), choice.machine, whole);
    for (const int stage : schedule_.stage_of[index(pp_.rank())])
      blocks_.push_back(all_[index(stage)]);
  }

  std::vector<BlockRange> blocks() const override { return blocks_; }
  int updates() const override {
    if (choice_.schedule == "2bw") return 1;
    return updates_on_its_way(choice_) ? schedule_.micro_batches : 0;
  }

  double run(const Model& model, std::int64_t count, const ReadMicroBatch& read, double loss_factor,
             Hooks hooks, const std::function<void()>& update) override {
    return pipeline(model).run(count, read, loss_factor, hooks,
                               updates() > 0 ? update : std::function<void()>());
  }
  std::vector<double> evaluate(const Model& model, std::span<const Batch> windows, Hooks hooks,
                               const Pass& pass) override {
    return pipeline(model).evaluate(windows, hooks, pass);
  }
  Tensor forward_cached(const Model& model, const Tensor& tokens, KeyValueCache& cache,
                        Hooks hooks) override {
    return pipeline(model).forward_cached(tokens, cache, hooks);
  }
  int last() const override { return stage_places(schedule_).back().rank; }

 private:
  PipelineRank& pipeline(const Model& model) {
    if (!pipeline_)
      pipeline_ = std::make_unique<PipelineRank>(
          rank_, pp_, model, schedule_,
          PipelineOptions{
              .input_shape =
                  [this](int stage, const Shape& tokens) {
                    if (stage_input_) return stage_input_(model_, all_[index(stage)].begin, tokens);
                    return Shape{tokens[0], tokens[1], model_.width};
                  },
              .dtype = model_.dtype,
              .codes = choice_.codes,
              .again = choice_.again,
              .keep_bytes = choice_.keep_bytes,
              .weights = choice_.schedule == "2bw" ? Weights::TwoBuffered : choice_.weights});
    return *pipeline_;
  }

  const Rank rank_;
  Communicator& pp_;
  const PipelineChoice choice_;
  const Schedule schedule_;
  const GptConfig model_;
  const std::function<Shape(const GptConfig&, std::int64_t, const Shape&)> stage_input_;
  std::vector<BlockRange> all_, blocks_;  // of all stages, of this rank's
  std::unique_ptr<PipelineRank> pipeline_;
};

}  // namespace

Schedule find_schedule(const PipelineChoice& choice, int ranks, int micro_batches) {
  const std::string& name = choice.schedule;
  if (name == "interleaved") return interleaved(ranks, choice.chunks, micro_batches);
  const int chunks = name == "zb-v" ? 2 : 1;
  if (choice.chunks != 1 && choice.chunks != chunks)
    fail(fmt::format("pipeline: {} with {} chunks, expected {}", name, choice.chunks, chunks));
  if (name == "naive") return naive(ranks, micro_batches);
  if (name == "gpipe") return gpipe(ranks, micro_batches);
  if (name == "1f1b") return one_f_one_b(ranks, micro_batches);
  if (name == "zb-h1") return zb_h1(ranks, micro_batches);
  if (name == "zb-h2") return zb_h2(ranks, micro_batches);
  if (name == "zb-v") return zb_v(ranks, micro_batches);
  if (name == "pipedream") return pipedream(ranks, micro_batches);
  if (name == "2bw") return two_bw(ranks, micro_batches, 1);
  fail(
      fmt::format("pipeline: schedule \"{}\", expected naive, gpipe, 1f1b, interleaved, zb-h1, "
                  "zb-h2, zb-v, pipedream or 2bw",
                  name));
}

std::vector<BlockRange> stages_of(const GptConfig& config, int stages, const std::string& machine,
                                  const GptParts& parts) {
  if (stages > config.layers + 2)
    fail(
        fmt::format("pipeline: {} stages of {} blocks, expected at most {}: each block, the "
                    "embedding and the head may be a stage",
                    stages, config.layers, config.layers + 2));
  GptConfig sizes = config;
  sizes.dropout = 0;
  const auto layers = gpt_layer_seconds(find_machine(machine), sizes, 1, config.context, parts);
  if (stages <= config.layers)
    return gpt_stages(config, cut(block_seconds(config, layers), stages));
  return part_stages(config, cut(part_seconds(config, layers), stages));
}

StepParts pipelined(const PipelineChoice& choice, StepParts parts) {
  parts.stages = [choice](const Rank& rank, Mesh& mesh, const TrainConfig& config,
                          const GptParts& whole) {
    return std::make_unique<GptStages>(rank, mesh, config, choice, whole);
  };
  return parts;
}

}  // namespace aisc
