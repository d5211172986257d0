// Yours to write; from 12_encoders/solution/bert_loss.cpp (stub 17417294c0ad).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "12_encoders/bert_loss.h"

#include <fmt/format.h>

#include <utility>

#include "12_encoders/bert_head.h"
#include "common/core/error.h"
#include "common/nn/cross_entropy.h"

namespace aisc {
namespace {

Tensor copied(ConstView x) {
  Tensor copy(x.shape(), x.dtype(), x.device());
  x.device().copy(copy, x);
  return copy;
}

}  // namespace

BertLoss::BertLoss(const Rank& rank, std::unique_ptr<Loss> words, std::int64_t classes,
                   std::int64_t batch, std::int64_t predictions)
    : rank_(rank),
      words_(std::move(words)),
      next_sentence_(std::make_unique<CrossEntropy>(rank, 2)),
      classes_(classes),
      batch_(batch),
      predictions_(predictions) {}

double BertLoss::forward(Tensor scores, const Tensor& targets, Saved& saved,
                         const Pass& pass) const {
  if (!pass.picked) return 0;
  if (!(pass.terms > 0))
    fail(fmt::format("bert: Pass::terms is {}, expected how many masked words the batch has",
                     pass.terms));
  const auto span = rank_.trace.span("loss");
  const auto [B, M] = picked_counts(pass, targets.count(), predictions_);
  const BertScores both = scores_of(scores, B, classes_);
  Tensor samples = copied(both.next_sentence), words = copied(both.words);
  scores = {};
  const Tensor labels = copied(targets.view().flat(0, B)), ids = copied(targets.view().flat(B, M));
  double sum = 0;
  // LAB 12.6: two losses
  // next_sentence_ and words_ are losses of their own: forward(scores, labels, saved, pass) is the
  // sum over those with a label. The caller divides what this returns by pass.terms, the masked
  // words of the global batch. What is a sample's loss to be multiplied by so that both become
  // means, of how many samples while training (batch_), of how many where a window is evaluated
  // (pass.training is false)? Both keep in `saved` what backward needs, which pops it in reverse;
  // keep(saved, weight) there, last.
  throw NotImplemented("lab 12.6: two losses", __FILE__, __LINE__);
  // END LAB 12.6
  return sum;
}

Tensor BertLoss::backward(Saved& saved, double factor) const {
  Tensor dsamples, dwords;  // (B, 2), (M, V)
  // LAB 12.6: two losses
  // kept(saved) is what forward kept, of which it was the last. backward(saved, f) of a loss is the
  // gradient of f times its sum.
  throw NotImplemented("lab 12.6: two losses", __FILE__, __LINE__);
  // END LAB 12.6
  const Tensor dscores({dsamples.count() + dwords.count()}, dwords.dtype(), dwords.device());
  const BertScores both = scores_of(dscores, dsamples.shape()[0], classes_);
  dscores.device().copy(both.next_sentence, dsamples);
  dscores.device().copy(both.words, dwords);
  return dscores.share();
}

void BertLoss::keep(Saved& saved, double weight) const {
  Tensor one({1}, DType::F64, host_);
  *one.data<double>() = weight;
  saved.push(std::move(one));
}

double BertLoss::kept(Saved& saved) { return *saved.pop().data<double>(); }

Tensor BertLoss::all_logits(Tensor scores) const {
  const std::int64_t B = scores.count() / (2 + predictions_ * classes_);
  Tensor words = copied(scores_of(scores, B, classes_).words);
  scores = {};
  return words_->all_logits(std::move(words));
}

}  // namespace aisc
