// The places of a training step in which techniques differ: how micro-batches run, how the
// gradients of all ranks become one, and the update. Trainer has a plain form of each; modules 02
// to 08 put others there, and module 11 combines them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/comm/mesh.h"
#include "common/nn/driver.h"
#include "common/nn/gpt.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"
#include "common/train/micro_batch.h"
#include "common/train/recompute.h"
#include "common/train/step_end.h"

namespace aisc {

// Reads micro-batch m of the step, once each.
using ReadMicroBatch = std::function<MicroBatch(std::int64_t m)>;

// Where a rank's micro-batches come from, in place of SampleSource::batch() when they are needed.
class BatchReader {
 public:
  virtual ~BatchReader() = default;
  // As data.batch(); called in the order of steps and micro-batches.
  virtual Batch read(const SampleSource& data, std::int64_t first_sample, std::int64_t count) = 0;
};

// Runs a rank's `count` micro-batches forward and backward: the gradients of loss_factor * (the sum
// of their losses), which it returns in nats.
using MicroBatchLoop =
    std::function<double(const Rank& rank, const Model& model, std::int64_t count,
                         const ReadMicroBatch& read, double loss_factor, Hooks hooks)>;
// The plain one: each forward and backward before the next is read.
double one_after_another(const Rank& rank, const Model& model, std::int64_t count,
                         const ReadMicroBatch& read, double loss_factor, Hooks hooks);

// How micro-batches pass through a model of which each rank of a pipeline has some stages.
class Stages {
 public:
  virtual ~Stages() = default;
  virtual std::vector<BlockRange> blocks() const = 0;  // of this rank's stages
  // As a MicroBatchLoop. The losses are the last stage's; elsewhere they are 0. `update` is called
  // updates() times.
  virtual double run(const Model& model, std::int64_t count, const ReadMicroBatch& read,
                     double loss_factor, Hooks hooks, const std::function<void()>& update) = 0;
  // Of schedules that update weights on their way; else 0.
  virtual int updates() const { return 0; }
  // The sum of the losses of each of these windows, without gradients: likewise the last stage's.
  virtual std::vector<double> evaluate(const Model& model, std::span<const Batch> windows,
                                       Hooks hooks, const Pass& pass) = 0;
  // As driver.h's forward_cached, through all stages: the logits where the last one is, an empty
  // tensor elsewhere. Collective in the pipeline: each of its ranks has a cache of its own.
  virtual Tensor forward_cached(const Model& model, const Tensor& tokens, KeyValueCache& cache,
                                Hooks hooks) = 0;
  virtual int last() const = 0;  // the rank of the pipeline that has the last stage
};

// Makes one gradient of those of all ranks, while backward runs or after it. A rank's gradients are
// its samples' part of the mean over the global batch: their sum is that mean, also of unequal
// shares. Which weights a rank then updates is the reducer's choice, too.
class Reducer : public LayerHook {
 public:
  Reducer(const Rank& rank, ParameterStore& store) : rank_(rank), store_(store) {}

  // The weights that this rank's optimizer updates, and where their gradients are after finish():
  // all of them here, on every rank.
  virtual std::vector<OptimizerSlice> slices() const { return slices_of(store_.parameters()); }
  // True: the ranks' slices are parts of the model, and together each of its elements once, in each
  // of the groups().
  virtual bool divides() const { return false; }
  // Of slices that are parts: the ranks whose parts together are the model, and those that have the
  // same part as this one, of which rank 0's counts and is saved. Null: all are one group, and
  // nobody has the same. They are the reducer's.
  struct Groups {
    const Communicator *within = nullptr, *across = nullptr;
  };
  virtual Groups groups() const { return {}; }
  // True: hooks communicate in forward, too, also where nothing is trained: then all ranks take the
  // same passes over the layers.
  virtual bool joins_forward() const { return false; }
  // The optimizer that updates these slices; called once, before the first step.
  void use(Optimizer& optimizer) { optimizer_ = &optimizer; }

  virtual void begin() {}     // before the first micro-batch of a step
  virtual void finish() = 0;  // after the last: now the slices' gradients are the update's
  // Of the gradients of finish() that count at this place, of all these ranks together.
  virtual double norm(const MeshPlace& place) const;
  virtual void updated() {}  // after the update
  // After the slices' weights were filled from elsewhere: now the model has them. Collective.
  virtual void take_slices() {}

 protected:
  const Rank& rank() const { return rank_; }
  ParameterStore& store() const { return store_; }
  Optimizer& optimizer() const { return *optimizer_; }

 private:
  Rank rank_;
  ParameterStore& store_;
  Optimizer* optimizer_ = nullptr;
};

// The plain one: one sum of all gradients, after backward.
class SumAtTheEnd final : public Reducer {
 public:
  using Reducer::Reducer;
  void finish() override;
};

// What happens around the update of the weights on each rank, in steps that are taken: gradients
// and weights are those of the optimizer's slices, before shards are gathered. Collective.
class UpdateHook {
 public:
  virtual ~UpdateHook() = default;
  // `step` steps were taken before this one.
  virtual void before(Optimizer& /*optimizer*/, std::int64_t /*step*/) {}
  virtual void after(Optimizer& /*optimizer*/, std::int64_t /*step*/) {}
};

// A factor of the loss, and so of all gradients, that keeps those of a short type above what the
// type can hold; and what it costs, steps that are skipped (module 10).
class StepScale {
 public:
  virtual ~StepScale() = default;
  virtual double factor() const = 0;  // of the step that begins
  // Takes the end of a step whose gradients are factor() times too large, by `finish`. Returns the
  // norm of the true gradients before clipping; one that is not finite says that the step was
  // skipped, on every rank, and weights and optimizer are as before. Throws Error where skipping
  // more steps would help no more.
  virtual double finish(StepEnd& end, double clip, const FinishStep& finish) = 0;
  virtual std::int64_t skipped() const = 0;  // steps so far
  // What a checkpoint keeps of it, the same on all ranks, and gives back.
  virtual std::vector<double> state() const = 0;
  virtual void restore(std::span<const double> state) = 0;
};

// Which tokens a rank of those that share each sequence has (TrainConfig::cp).
using TokenPartOf = std::function<TokenPart(int rank, int ranks, std::int64_t tokens)>;

struct TrainConfig;
struct StepParts;
// Model FLOPs of one step of all ranks, forward and backward.
double flops_per_step(const TrainConfig& config, const StepParts& parts);
double tokens_per_step(const TrainConfig& config, const StepParts& parts);

// Where a function is empty the plain form is used: AdamW, SumAtTheEnd, SampleSource::batch,
// one_after_another, finish_in_order.
struct StepParts {
  // Of the reducer's slices. `mesh` is null where every rank has whole layers of the whole model.
  std::function<std::unique_ptr<Optimizer>(const Rank& rank, Mesh* mesh, ParameterStore& store,
                                           std::vector<OptimizerSlice> slices,
                                           const TrainConfig& config)>
      optimizer = {};
  std::function<std::unique_ptr<Reducer>(const Rank& rank, const Model& model,
                                         ParameterStore& store)>
      reducer = {};
  // Of the ranks that each have a share of every batch.
  std::function<std::unique_ptr<BatchReader>(const Rank& rank, const TrainConfig& config)> reader =
      {};
  // What each micro-batch of a step becomes once it is read, also where a step is planned: of a
  // loss that needs more than targets (module 10). Windows that are evaluated stay as they are.
  std::function<Batch(Batch batch)> batch = {};
  MicroBatchLoop loop = {};
  // Around the layers, inside the reducer's: what else happens there. `mesh` as in `optimizer`.
  std::vector<
      std::function<std::unique_ptr<LayerHook>(const Rank& rank, const Model& model, Mesh* mesh)>>
      hooks = {};
  std::vector<
      std::function<std::unique_ptr<UpdateHook>(const Rank& rank, const Model& model, Mesh* mesh)>>
      update_hooks = {};
  // Another model than a GPT, of its parts, split and with experts already: BERT, a decoder behind
  // an encoder. `mesh` as in `optimizer`. Also made for one rank, which has the whole.
  std::function<GptParts(GptParts parts, Mesh* mesh)> architecture = {};
  // Model FLOPs of one of its samples, forward and backward. Empty: a GPT's.
  std::function<double(const GptConfig& model)> flops_per_sample = {};
  // Tokens that one brings through the model; 0: GptConfig::context.
  std::int64_t tokens_per_sample = 0;
  // What layers compute: these parts, split and with experts already, with others around them that
  // have the same parameters. The first is the innermost.
  std::vector<std::function<GptParts(GptParts parts)>> layers = {};
  FinishStep finish = {};
  std::function<std::unique_ptr<StepScale>()> scale = {};  // empty: none, and no step is skipped
  // Of a mesh, in place of Reducer::norm: what it returns is summed over the ranks that have
  // different parts. Without shards all data-parallel ranks count, each for its own tensor ranks
  // and stages.
  OwnSquare own_square = {};
  // Of a pipeline (TrainConfig::pp), in place of the loop; empty: each rank has the whole model.
  // Reducer and optimizer are then those of the ranks that have the same stages. `whole` are the
  // layers as a single rank has them, by whose cost a model may be cut.
  std::function<std::unique_ptr<Stages>(const Rank& rank, Mesh& mesh, const TrainConfig& config,
                                        const GptParts& whole)>
      stages = {};
  // The mesh of config.pp * config.tp ranks and data-parallel ones; empty: Mesh(rank.world, shape).
  std::function<std::unique_ptr<Mesh>(const Rank& rank, const MeshShape& shape)> mesh = {};
  // Of tensor parallelism (TrainConfig::tp): these parts of a model as a rank of `tp` has them.
  std::function<GptParts(GptParts parts, Communicator& tp)> split = {};
  // Of a model with experts (GptConfig::experts): these parts, `split` already, with experts where
  // GptConfig::has_experts(Wanted::block). Weights are (experts, ...), split along dimension 0 over
  // mesh->experts() and of Sync::ExpertData; without a mesh (`mesh` as in `optimizer`) a rank has
  // all. Also made on a device without numbers, which plans a step.
  std::function<GptParts(GptParts parts, Mesh* mesh)> experts = {};
  // With the plain form of what is empty.
  StepParts completed() &&;
  // These parts with experts where `model` has any. Throws Error where it has, and none are given.
  GptParts with_experts(const GptConfig& model, GptParts parts, Mesh* ranks) const;
  // Of such a model that begins with a dense one's weights: fills a whole parameter by what `read`
  // fills of the dense model; false: there it has none, and what was drawn stays.
  using ReadWhole = std::function<void(const Parameter& parameter, View whole)>;
  std::function<bool(const Parameter& parameter, View whole, const ReadWhole& read)> upcycle = {};
  // A core of attention of so many heads, this rank's; beside cp it sees to it that ranks attend to
  // each other's tokens. Empty: CausalCore. `mesh` as in `optimizer`.
  std::function<std::unique_ptr<Layer>(const GptParts::Wanted& wanted, Mesh* mesh,
                                       std::int64_t heads)>
      core = {};
  TokenPartOf context = {};       // of context parallelism, beside `core`
  RecomputeCore recomputed = {};  // what Recompute::core puts around a core; empty: Recomputed
  Masks masks = Masks::Drawn;     // of the dropout between layers
  // ParameterStore::Options: whether units are padded to split evenly over the ranks; whether there
  // is memory for all values and gradients, or the reducer binds them.
  bool divided = false, all_values = true, all_gradients = true;
  int shard_group = 0;  // where units are divided: over groups of so many ranks; 0: over all
  // Over how many of the `ranks` that sum gradients units are divided.
  int shards(int ranks) const { return !divided ? 1 : shard_group > 0 ? shard_group : ranks; }
};

}  // namespace aisc
