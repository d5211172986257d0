#include "12_encoders/more/counted_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "12_encoders/bert_head.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

class CountedLoss final : public Loss {
 public:
  CountedLoss(std::unique_ptr<Loss> loss, CountHits count)
      : loss_(std::move(loss)), count_(std::move(count)) {}

  double forward(Tensor scores, const Tensor& targets, Saved& saved,
                 const Pass& pass) const override {
    if (passes_ && !pass.training) passes_->push_back(count_(*loss_, scores, targets, pass));
    return loss_->forward(std::move(scores), targets, saved, pass);
  }
  Tensor backward(Saved& saved, double factor) const override {
    return loss_->backward(saved, factor);
  }
  Tensor all_logits(Tensor logits) const override { return loss_->all_logits(std::move(logits)); }

  void begin() const { passes_.emplace(); }
  // Of the passes since then, in their order.
  std::vector<std::vector<Hits>> end() const { return *std::exchange(passes_, std::nullopt); }

 private:
  std::unique_ptr<Loss> loss_;
  CountHits count_;
  mutable std::optional<std::vector<std::vector<Hits>>> passes_;  // a rank has a model of its own
};

}  // namespace

std::vector<std::int8_t> places_right(ConstView scores, std::int64_t classes, ConstView targets) {
  const std::int64_t N = targets.count(), row = N > 0 ? scores.count() / N : 0;
  CpuDevice host;
  const Tensor wanted({N}, DType::I32, host), copy({N, row}, scores.dtype(), host),
      values({N, row}, DType::F64, host);
  targets.device().copy(wanted, targets.reshaped({N}));
  scores.device().copy(copy, scores.reshaped({N, row}));
  ops::cast(values, copy);
  std::vector<std::int8_t> right;
  for (std::int64_t i = 0; i < N; ++i) {
    const std::int32_t target = wanted.data<std::int32_t>()[i];
    const double* const first = values.data<double>() + i * row;
    right.push_back(target < 0                                                   ? std::int8_t{-1}
                    : std::max_element(first, first + classes) - first == target ? std::int8_t{1}
                                                                                 : std::int8_t{0});
  }
  return right;
}

Hits hits_of(ConstView scores, std::int64_t classes, ConstView targets) {
  const std::vector<std::int8_t> right = places_right(scores, classes, targets);
  const std::int64_t without = std::count(right.begin(), right.end(), std::int8_t{-1});
  return {.right = std::count(right.begin(), right.end(), std::int8_t{1}),
          .of = std::ssize(right) - without};
}

GptParts counting(GptParts parts, CountHits count) {
  parts.loss = [loss = std::move(parts.loss), count = std::move(count)](GptParts::Wanted w) {
    return std::make_unique<CountedLoss>(loss(w), count);
  };
  return parts;
}

StepParts counting(StepParts parts, CountHits count) {
  parts.architecture = [made = std::move(parts.architecture), count = std::move(count)](
                           GptParts of_gpt, Mesh* mesh) {
    return counting(made ? made(std::move(of_gpt), mesh) : std::move(of_gpt), count);
  };
  return parts;
}

CountHits hits_of_bert(std::int64_t predictions, std::int64_t vocabulary) {
  return [=](const Loss& loss, const Tensor& scores, const Tensor& targets, const Pass& pass) {
    if (!pass.picked) return std::vector<Hits>();
    const auto [B, M] = picked_counts(pass, targets.count(), predictions);
    const Tensor words = loss.all_logits(scores.share());
    return std::vector{hits_of(words, vocabulary, targets.view().flat(B, M)),
                       hits_of(scores.view().flat(0, 2 * B), 2, targets.view().flat(0, B))};
  };
}

CountedEvaluation evaluate_counting(const Rank& rank, const Trainer& trainer,
                                    std::span<const Batch> windows, std::size_t kinds) {
  const Loss* const own = trainer.model().loss.get();
  const auto* const loss = dynamic_cast<const CountedLoss*>(own);
  if (own && !loss) fail("evaluation: found a loss that counts nothing, expected counting()");
  if (loss) loss->begin();
  CountedEvaluation found{.loss = trainer.evaluate(windows), .hits = std::vector<Hits>(kinds)};
  std::vector<std::int64_t> sums(2 * kinds);
  if (loss) {
    std::vector<std::vector<Hits>> passes = loss->end();
    // Others repeat one that was there; what tensor ranks have is the same as the first's.
    const bool counts = !trainer.mesh() || trainer.mesh()->place().tp == 0;
    passes.resize(counts ? std::min(windows.size(), passes.size()) : 0);
    for (const std::vector<Hits>& of_pass : passes)
      for (std::size_t k = 0; k < std::min(kinds, of_pass.size()); ++k) {
        sums[2 * k] += of_pass[k].right;
        sums[2 * k + 1] += of_pass[k].of;
      }
  }
  sum_of_all(rank.world, std::span(sums));  // comm: 16 bytes a kind, each had windows of its own
  for (std::size_t k = 0; k < kinds; ++k) {
    found.hits[k] = {.right = sums[2 * k], .of = sums[2 * k + 1]};
    if (found.hits[k].of == 0) fail("evaluation: no sample had a target that is counted");
  }
  return found;
}

}  // namespace aisc
