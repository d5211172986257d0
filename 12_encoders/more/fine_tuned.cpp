#include "12_encoders/more/fine_tuned.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "12_encoders/bert.h"
#include "12_encoders/bert_rows.h"
#include "12_encoders/fine_tuning.h"
#include "12_encoders/more/counted_loss.h"
#include "common/core/error.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/dropout.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

using std::make_unique;
using Wanted = const GptParts::Wanted&;

// x (B, T, C) -> (B, C): the pooler's of each picked row.
class PooledTexts final : public Layer {
 public:
  PooledTexts(const Rank& rank, std::int64_t width, Communicator* token_ranks)
      : Layer(rank, "pooler"), picked_(rank, token_ranks), pooler_(make_pooler(rank, width)) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    const std::int64_t B = x.shape()[0];
    Tensor places = picked_places(pass, B, x.shape()[1] * picked_.ranks(), x.device());
    if (places.count() != B)
      fail(fmt::format("fine-tuning: {} places are picked of {} texts, expected one of each",
                       places.count(), B));
    Tensor pooled = pooler_->forward(picked_.forward(x, places), saved, pass);
    // Of x its shape is kept, and no element.
    saved.push(Tensor(x.shape().with(-1, 0), x.dtype(), x.device()));
    saved.push(std::move(places));
    return pooled;
  }

  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    const Tensor places = saved.pop(), shaped = saved.pop();
    const Tensor drows = pooler_->backward(std::move(dy), saved, pass);  // (B, C)
    Tensor dx(shaped.shape().with(-1, drows.shape()[1]), drows.dtype(), drows.device());
    picked_.backward(dx, drows, places);
    return dx;
  }

  std::vector<Parameter*> parameters() override { return pooler_->parameters(); }

 private:
  PickedRows picked_;
  std::unique_ptr<Layer> pooler_;
};

// Without picked rows, of which no label can be, 0.
class LabelLoss final : public Loss {
 public:
  LabelLoss(const Rank& rank, std::int64_t labels) : entropy_(rank, labels) {}

  double forward(Tensor scores, const Tensor& targets, Saved& saved,
                 const Pass& pass) const override {
    return pass.picked ? entropy_.forward(std::move(scores), targets, saved, pass) : 0;
  }
  Tensor backward(Saved& saved, double factor) const override {
    return entropy_.backward(saved, factor);
  }

 private:
  CrossEntropy entropy_;
};

// make_gpt() takes it that a pipeline's last stage has the first one's table, too, and that their
// gradients are to be summed. No head has it here. Its work on the table is done when it makes the
// positions.
void leave_table_to_first_stage(GptParts& parts) {
  const auto table = std::make_shared<Parameter*>(nullptr);
  parts.embedding = [table, make = std::move(parts.embedding)](Wanted w, Parameter its) {
    std::unique_ptr<Layer> layer = make(w, std::move(its));
    *table = layer->parameters().front();
    return layer;
  };
  parts.positions = [table, make = std::move(parts.positions)](Wanted w) {
    (*table)->tied = Tied::No;
    return make(w);
  };
}

}  // namespace

GptParts fine_tuned_parts(const FineTuneOptions& options, GptParts parts, Mesh* mesh) {
  // Batch and predictions are those of losses that are replaced.
  parts = bert_parts({.batch = 1, .predictions = 1, .epsilon = options.epsilon}, std::move(parts),
                     mesh);
  Communicator* const token_ranks = parts.token_parts > 1 ? &mesh->tp() : nullptr;
  leave_table_to_first_stage(parts);
  parts.last = [token_ranks](Wanted w) {
    return make_unique<PooledTexts>(w.rank, w.config.width, token_ranks);
  };
  parts.head = [labels = options.labels](Wanted w, Parameter* /*table*/) {
    // Not of the parts, which may be for a part of the tokens: each rank has all rows.
    return in_sequence(w.rank, "classifier",
                       make_unique<Dropout>(w.rank, "classifier.dropout", w.config.dropout,
                                            w.config.seed, w.parts.masks),
                       make_unique<Classifier>(w.rank, labels, w.config.width));
  };
  const std::int64_t labels = options.labels;
  parts.loss = [labels](Wanted w) { return make_unique<LabelLoss>(w.rank, labels); };
  return counting(std::move(parts), [labels](const Loss&, const Tensor& scores,
                                             const Tensor& targets, const Pass& pass) {
    return pass.picked ? std::vector{hits_of(scores, labels, targets)} : std::vector<Hits>();
  });
}

StepParts fine_tuned(const FineTuneOptions& options, StepParts parts) {
  if (options.labels < 2)
    fail(fmt::format("fine-tuning: {} labels, expected 2 or more", options.labels));
  parts.architecture = [options](GptParts of_gpt, Mesh* mesh) {
    return fine_tuned_parts(options, std::move(of_gpt), mesh);
  };
  return parts;
}

Judged judge(const Rank& rank, const Trainer& trainer, std::span<const Batch> windows) {
  const CountedEvaluation found = evaluate_counting(rank, trainer, windows, 1);
  return {.loss = found.loss, .right = found.hits[0].right, .texts = found.hits[0].of};
}

}  // namespace aisc
