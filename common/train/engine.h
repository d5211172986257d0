// One's own training loop over any model, with everything else of a step inside: sums over ranks,
// shards, accumulation, loss scale, clipping, the learning rate, the update. The counterpart of
// DeepSpeed's engine; Trainer is the same for a GPT, with the loop inside, too.
//
//   Engine engine(rank, std::move(model), config, parts);
//   for (;;) {
//     double loss = engine.forward(batch);  // a micro-batch of this rank
//     engine.backward();
//     engine.step();                        // moves weights after the last one of a step
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/optim/schedule.h"
#include "common/train/step_parts.h"
#include "common/train/train_config.h"

namespace aisc {

class Engine : private StepEnd {
 public:
  // `model`: whole, as every rank has it, its parameters not bound yet; they are drawn from
  // config.seed. Of `config` the sizes of a GPT (model) do not matter, but for its dtype, which the
  // parameters get. Throws Error: a batch that ranks and micro-batches do not divide; parts or
  // sizes that are made for the loop or the layers of a GPT (stages, a mesh, experts, layered
  // accumulation); parameters whose gradients other ranks sum than all.
  Engine(const Rank& rank, Model model, const TrainConfig& config, StepParts parts = {});

  // The mean loss of a micro-batch of this rank (nats). Keeps what backward() needs.
  //
  // `step_terms`: of the loss, of all micro-batches and ranks of the step together, so that each
  // term counts alike. 0: each micro-batch has as many as this one; a mean of means. Throws Error:
  // a forward whose backward has not come.
  double forward(const Batch& batch, double step_terms = 0);
  // Adds its gradients. Throws Error: there was no forward.
  void backward();
  // Behind the backward of a micro-batch. Of the last one of a step (config.micro_batches): sums,
  // unscales, clips and updates, on all ranks together. Returns whether the weights moved: they do
  // not on the way to a step's end, nor where a loss that is scaled overflowed. Throws Error:
  // no backward came before; as Trainer::step().
  bool step();

  std::int64_t micro_batch() const { return micro_batch_; }  // under way, or next, of a step's
  std::int64_t micro_batches() const { return config_.micro_batches; }
  bool is_boundary() const { return micro_batch_ + 1 == config_.micro_batches; }  // it is the last
  std::int64_t steps() const { return steps_; }  // taken, skipped ones as well
  std::int64_t skipped() const { return scale_ ? scale_->skipped() : 0; }
  double gradient_norm() const { return norm_; }  // of the last step, before clipping
  double learning_rate() const { return schedule_.at(steps_ - skipped()); }  // of the next one
  double loss_scale() const { return scale_ ? scale_->factor() : 1; }

  // What the layers make of x; nothing is kept. Collective where weights are gathered.
  Tensor predict(const Tensor& x) const;
  // The mean loss of a batch, without gradients.
  double evaluate(const Batch& batch) const;

  const Model& model() const { return model_; }
  const ParameterStore& parameters() const { return *store_; }
  const Optimizer& optimizer() const { return *optimizer_; }

 private:
  enum class Waits { Forward, Backward, Step };  // what is to be called next
  void require(Waits now, const char* call) const;

  void sum_over_tensor_ranks() override {}
  void sum_over_data_ranks() override { reducer_->finish(); }
  void sum_tied_tables() override {}
  double own_square() override;
  double sum_over_world(double own) override { return own; }  // Reducer::norm is of all ranks
  void require_finite(double norm) override;
  void update(double gradient_scale) override;
  void gather_weights() override { reducer_->updated(); }

  Rank rank_;
  TrainConfig config_;
  StepParts parts_;
  Model model_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Reducer> reducer_;
  RateSchedule schedule_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepScale> scale_;
  std::vector<std::unique_ptr<LayerHook>> more_hooks_;
  std::vector<std::unique_ptr<UpdateHook>> update_hooks_;
  std::vector<LayerHook*> hooks_;
  std::int64_t steps_ = 0, micro_batch_ = 0;
  double norm_ = 0;
  // Of the micro-batch that is under way.
  Waits waits_ = Waits::Forward;
  MicroBatch current_;
  std::vector<Saved> saved_;
  double factor_ = 0;
};

}  // namespace aisc
