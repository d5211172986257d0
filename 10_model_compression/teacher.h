// Training beside a teacher: a model that only answers, and the loss of a student that hears it.
#pragma once

#include <functional>

#include "10_model_compression/distill.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/gpt.h"
#include "common/nn/parameter_store.h"
#include "common/train/step_parts.h"
#include "common/train/train_config.h"

namespace aisc {

// A whole model on one rank, in a precision of its own: weights without gradients, forward alone.
class Teacher {
 public:
  // `parameters` are the model's.
  Teacher(const GptConfig& config, Model model, ParameterStore parameters);
  // With memory for its weights, which the caller fills; on a device without numbers there is
  // nothing to fill, and its bytes are counted. Throws Error as make_gpt.
  Teacher(const Rank& rank, const GptConfig& config, const GptParts& parts = gpt2_parts());

  // (B, T, its table_rows()) of tokens (B, T); the first config().vocabulary columns are classes.
  Tensor logits(const Tensor& tokens) const;

  const GptConfig& config() const { return config_; }
  ParameterStore& parameters() { return parameters_; }

 private:
  GptConfig config_;
  Model model_;
  ParameterStore parameters_;
};

// Called by each rank that has the last stage of a student, from the rank's own thread: all of them
// have the whole teacher, on their devices. Collective in nothing.
using MakeTeacher = std::function<Teacher(const Rank& rank)>;

// The targets and the tokens of a batch as one tensor (2, B, T), in place of its targets: what
// DistillLoss needs to ask a teacher. The tokens stay as they are.
Batch with_tokens(Batch batch);

// Its value is the cross-entropy with the targets alone, so that a student's loss compares
// with any other run's. Its gradient is that of both parts (distill.h).
//
// A loss sees no tokens: those of a micro-batch come with its targets (with_tokens()), whichever
// micro-batch is under way, and the teacher is asked when the loss runs, on the rank that runs it.
// So no logits wait while a pipeline reads ahead. Nothing is asked where nothing is kept for a
// backward: in evaluation, whose targets may come alone, and in a forward that is to be repeated.
// Kept: both models' logits; the student's become their own gradient in place.
class DistillLoss final : public Loss {
 public:
  // Of a student of this size, whole (tp and cp are 1). Throws Error for options, and for a teacher
  // with another vocabulary or a shorter context.
  DistillLoss(const Rank& rank, const GptConfig& student, Teacher teacher,
              const DistillOptions& options);

  // logits (B, T, V), targets (2, B, T), or (B, T) in evaluation. Throws Error for targets without
  // tokens in training.
  double forward(Tensor logits, const Tensor& targets, Saved& saved,
                 const Pass& pass) const override;
  Tensor backward(Saved& saved, double factor) const override;

  const Teacher& teacher() const { return teacher_; }

 private:
  Rank rank_;
  std::int64_t classes_;
  Teacher teacher_;
  DistillOptions options_;
  CrossEntropy hard_;
};

// For a Trainer: its model is a student of the teacher that `make` makes. With any number of
// data-parallel ranks, stages and micro-batches, and in plans of a step. The teacher has no share
// in gradients, optimizer and checkpoints. Throws Error for options, and where ranks share each
// layer or each sequence (tp, cp), since none has a token's whole logits or context then.
StepParts distilled(const TrainConfig& config, MakeTeacher make, const DistillOptions& options = {},
                    StepParts parts = {});

}  // namespace aisc
