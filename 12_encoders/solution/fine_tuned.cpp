#include "12_encoders/fine_tuned.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "12_encoders/bert.h"
#include "12_encoders/bert_rows.h"
#include "12_encoders/fine_tuning.h"
#include "common/comm/host_values.h"
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

struct Hits {
  std::int64_t right = 0, texts = 0;
};

// Cross entropy, which counts in evaluation: it alone sees the scores on every layout.
class LabelLoss final : public Loss {
 public:
  LabelLoss(const Rank& rank, std::int64_t labels) : entropy_(rank, labels) {}

  // 0 without picked rows, of which no label can be.
  double forward(Tensor scores, const Tensor& targets, Saved& saved,
                 const Pass& pass) const override {
    if (!pass.picked) return 0;
    if (hits_ && !pass.training) hits_->push_back(hits_of(scores, targets));
    return entropy_.forward(std::move(scores), targets, saved, pass);
  }
  Tensor backward(Saved& saved, double factor) const override {
    return entropy_.backward(saved, factor);
  }

  void begin_counting() const { hits_.emplace(); }
  // Of the first `passes` since then: others repeat one that was there. Ends counting.
  Hits counted(std::size_t passes) const {
    std::vector<Hits> all = *std::exchange(hits_, std::nullopt);
    all.resize(std::min(passes, all.size()));
    Hits sum;
    for (const Hits& of_pass : all) {
      sum.right += of_pass.right;
      sum.texts += of_pass.texts;
    }
    return sum;
  }

 private:
  // Of texts whose label is here, not -1.
  static Hits hits_of(const Tensor& scores, const Tensor& targets) {
    CpuDevice host;
    const Tensor labels(targets.shape(), DType::I32, host);
    targets.device().copy(labels, targets);
    const std::vector<std::int32_t> predicted = predicted_labels(scores);
    Hits hits;
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      const std::int32_t label = labels.data<std::int32_t>()[i];
      hits.texts += label >= 0 ? 1 : 0;
      hits.right += label == predicted[i] ? 1 : 0;
    }
    return hits;
  }

  CrossEntropy entropy_;
  mutable std::optional<std::vector<Hits>> hits_;  // by pass; a rank has a model of its own
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
  parts.loss = [labels = options.labels](Wanted w) {
    return make_unique<LabelLoss>(w.rank, labels);
  };
  return parts;
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
  const auto* const loss = dynamic_cast<const LabelLoss*>(trainer.model().loss.get());
  if (loss) loss->begin_counting();
  Judged judged{.loss = trainer.evaluate(windows)};
  Hits own;
  if (loss) own = loss->counted(windows.size());
  if (trainer.mesh() && trainer.mesh()->place().tp > 0) own = {};  // the same as the first's
  std::int64_t sums[] = {own.right, own.texts};
  sum_of_all(rank.world, sums);  // comm: 16 bytes, each rank had texts of its own
  if (sums[1] == 0) fail("fine-tuning: no text was judged: found a model without labels");
  judged.right = sums[0];
  judged.texts = sums[1];
  return judged;
}

}  // namespace aisc
