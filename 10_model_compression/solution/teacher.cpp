#include "10_model_compression/teacher.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "common/core/error.h"
#include "common/nn/driver.h"

namespace aisc {

Teacher::Teacher(const GptConfig& config, Model model, ParameterStore parameters)
    : config_(config), model_(std::move(model)), parameters_(std::move(parameters)) {}

Teacher::Teacher(const Rank& rank, const GptConfig& config, const GptParts& parts)
    : config_(config),
      model_(make_gpt(rank, config, parts)),
      parameters_(rank.device, all_units(model_),
                  {.value_dtype = config.dtype, .gradients = false}) {}

Tensor Teacher::logits(const Tensor& tokens) const { return forward(model_, tokens); }

Batch with_tokens(Batch batch) {
  const std::int64_t B = batch.tokens.shape()[0], T = batch.tokens.shape()[1];
  Device& device = batch.tokens.device();
  Tensor both({2, B, T}, DType::I32, device);  // (2, B, T)
  device.copy(both.rows(0, 1).reshaped({B, T}), batch.targets);
  device.copy(both.rows(1, 2).reshaped({B, T}), batch.tokens);
  batch.terms = batch.term_count();
  batch.targets = std::move(both);
  return batch;
}

namespace {

// Half of what with_tokens() has put together: (B, T).
enum class HalfOf { Targets, Tokens };
Tensor half_of_targets(const Tensor& both, HalfOf half) {
  const std::int64_t B = both.shape()[1], T = both.shape()[2], row = half == HalfOf::Tokens;
  Tensor own({B, T}, DType::I32, both.device());
  both.device().copy(own, both.rows(row, row + 1).reshaped({B, T}));
  return own;
}

}  // namespace

DistillLoss::DistillLoss(const Rank& rank, const GptConfig& student, Teacher teacher,
                         const DistillOptions& options)
    : rank_(rank),
      classes_(student.vocabulary),
      teacher_(std::move(teacher)),
      options_(options),
      hard_(rank, classes_) {
  options.validate();
  const GptConfig& its = teacher_.config();
  if (its.vocabulary != student.vocabulary)
    fail(
        fmt::format("distill: the teacher has a vocabulary of {} tokens, the student one of {}: "
                    "classes are compared one by one, which takes the same tokenizer",
                    its.vocabulary, student.vocabulary));
  if (its.context < student.context)
    fail(
        fmt::format("distill: the teacher sees {} tokens, the student's context is {}: expected "
                    "as many or more",
                    its.context, student.context));
}

double DistillLoss::forward(Tensor logits, const Tensor& targets, Saved& saved,
                            const Pass& pass) const {
  const bool has_tokens = targets.shape().rank() == 3;
  if (!has_tokens) {
    if (saved.keeps())
      fail(
          "distill: a micro-batch to train on has targets alone, expected its tokens beside them: "
          "with_tokens() puts them there (StepParts::batch)");
    return hard_.forward(std::move(logits), targets, saved, pass);
  }
  const Tensor own = half_of_targets(targets, HalfOf::Targets);
  const double loss = hard_.forward(std::move(logits), own, saved, pass);
  if (!saved.keeps()) return loss;
  const auto span = rank_.trace.span("teacher");
  saved.push(teacher_.logits(half_of_targets(targets, HalfOf::Tokens)));
  return loss;
}

Tensor DistillLoss::backward(Saved& saved, double factor) const {
  const auto span = rank_.trace.span("loss");
  const Tensor wanted = saved.pop(), targets = saved.pop();  // (B, T, W), (B, T)
  saved.pop();                                               // CrossEntropy's log-sum-exps
  Tensor logits = saved.pop();                               // (B, T, V)
  distill_backward(as_rows(logits), as_rows(logits), as_rows(wanted),
                   targets.view().reshaped({targets.count()}), classes_, options_, factor);
  return logits;
}

StepParts distilled(const TrainConfig& config, MakeTeacher make, const DistillOptions& options,
                    StepParts parts) {
  options.validate();
  const auto refuse = [](const char* what, int degree, const char* why) {
    if (degree > 1) fail(fmt::format("distill: {} is {}, expected 1: {}", what, degree, why));
  };
  refuse("tp", config.tp, "ranks that share each layer have some classes of each token alone");
  refuse("cp", config.cp, "ranks that share each sequence have no context for a teacher");
  parts.layers.push_back([make = std::move(make), options](GptParts student) {
    student.loss = [make, options](const GptParts::Wanted& w) {
      return std::make_unique<DistillLoss>(w.rank, w.config, make(w.rank), options);
    };
    return student;
  });
  parts.batch = [before = std::move(parts.batch)](Batch batch) {
    return with_tokens(before ? before(std::move(batch)) : std::move(batch));
  };
  return parts;
}

}  // namespace aisc
