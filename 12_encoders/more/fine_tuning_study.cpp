#include "12_encoders/more/fine_tuning_study.h"

#include <algorithm>
#include <utility>

#include "12_encoders/bert.h"
#include "12_encoders/bert_samples.h"
#include "12_encoders/fine_tuning.h"
#include "12_encoders/more/counted_loss.h"
#include "12_encoders/more/fine_tuned.h"
#include "common/comm/launch.h"
#include "common/core/range.h"

namespace aisc {
namespace {

constexpr std::int64_t kPointsOfPretraining = 10;
constexpr std::int64_t kTextsAtOnce = 32, kPairsLookedAt = 512;

// As BERT was trained, on the scale of this model: a warm-up of a tenth, then down to nearly 0.
TrainConfig study_config_of(const TuningSizes& sizes, std::int64_t batch, std::int64_t steps,
                            double rate, std::uint64_t seed) {
  TrainConfig config{.model = sizes.model(),
                     .batch = batch,
                     .steps = steps,
                     .learning_rate = rate,
                     .min_learning_rate = rate / 20,
                     .warmup_steps = std::max<std::int64_t>(1, steps / 10),
                     .weight_decay = 0.01,
                     .beta2 = 0.999,
                     .seed = seed};
  config.model.seed = seed;
  return config;
}

Weights weights_of(const Trainer& trainer) {
  Weights weights;
  for (const Parameter* p : trainer.parameters().parameters()) {
    const std::span<const float> values = p->value().values<float>();
    weights[p->name].assign(values.begin(), values.end());
  }
  return weights;
}

ReadPretrained reader_of(const Weights& weights) {
  return [&weights](const Parameter& parameter, View whole) {
    const auto its = weights.find(parameter.name);
    if (its == weights.end()) return false;
    std::copy(its->second.begin(), its->second.end(), whole.values<float>().begin());
    return true;
  };
}

std::vector<Batch> windows_of(Device& device, const TuningSizes& sizes,
                              std::span<const LabelledTokens> texts) {
  std::vector<Batch> windows;
  for (std::int64_t begin = 0; begin < std::ssize(texts); begin += kTextsAtOnce) {
    const std::int64_t count = std::min(kTextsAtOnce, std::ssize(texts) - begin);
    windows.push_back(labelled_batch(device, texts.subspan(index(begin), index(count)),
                                     sizes.context, sizes.special));
  }
  return windows;
}

}  // namespace

GptConfig TuningSizes::model() const {
  return {.layers = layers,
          .heads = std::max<std::int64_t>(1, width / 32),
          .width = width,
          .context = context,
          .vocabulary = vocabulary,
          .vocabulary_multiple = 8,
          .dropout = dropout,
          .encoder_blocks = layers};
}

Pretraining pretrain(const Rank& rank, const TuningSizes& sizes, const Documents& documents,
                     std::int64_t steps, double rate, std::uint64_t seed) {
  BertSampleOptions of_samples{.context = sizes.context,
                               .vocabulary = sizes.vocabulary,
                               .special = sizes.special,
                               .seed = seed};
  const BertSamples data(documents, of_samples);
  of_samples.even = kPairsLookedAt;
  const BertSamples others(documents, of_samples);
  std::vector<Batch> windows;
  for (std::int64_t begin = 0; begin < kPairsLookedAt; begin += kTextsAtOnce)
    windows.push_back(others.batch(rank.device, begin, kTextsAtOnce));
  const TrainConfig config = study_config_of(sizes, sizes.pretraining_batch, steps, rate, seed);
  const std::int64_t predictions = data.most_masked();
  Trainer trainer(rank, config,
                  counting(bert({.batch = config.batch, .predictions = predictions}),
                           hits_of_bert(predictions, sizes.vocabulary)));
  Pretraining done;
  double sum = 0;
  for (std::int64_t s = 0, from = 0; s < steps; ++s) {
    sum += trainer.step(data).loss;
    const std::int64_t point = std::ssize(done.points) + 1;
    if (s + 1 < point * steps / kPointsOfPretraining) continue;
    const std::vector<Hits> hits = evaluate_counting(rank, trainer, windows, 2).hits;
    done.points.push_back(
        {s + 1, sum / static_cast<double>(s + 1 - from), hits[0].share(), hits[1].share()});
    sum = 0;
    from = s + 1;
  }
  done.weights = weights_of(trainer);
  return done;
}

std::vector<TuningPoint> run_tuning(const Rank& rank, const TuningSizes& sizes,
                                    const TuningRun& run) {
  const ParagraphSamples data(run.training, sizes.context, sizes.special, run.seed);
  const TrainConfig config = study_config_of(sizes, sizes.batch, run.steps, run.rate, run.seed);
  Trainer trainer(rank, config, fine_tuned({.labels = run.labels}));
  if (run.pretrained) begin_from_pretrained(trainer, reader_of(*run.pretrained));
  const std::vector<Batch> windows = windows_of(rank.device, sizes, run.held_out);
  std::vector<TuningPoint> points;
  const auto look = [&] {
    const Judged judged = judge(rank, trainer, windows);
    points.push_back({trainer.steps_taken(), judged.accuracy(), judged.loss});
  };
  look();
  while (trainer.steps_taken() < run.steps) {
    trainer.step(data);
    if (trainer.steps_taken() % run.look_every == 0) look();
  }
  return points;
}

std::vector<std::vector<TuningPoint>> run_tunings(const TuningSizes& sizes,
                                                  const std::vector<TuningRun>& runs, int at_once) {
  std::vector<std::vector<TuningPoint>> all(runs.size());
  launch({.ranks = at_once, .backend = LaunchOptions::Backend::Threads}, [&](const Rank& rank) {
    const auto alone = make_self_communicator("study");
    const Rank own{*alone, rank.device, rank.clock, rank.trace};
    for (std::size_t i = index(rank.world.rank()); i < runs.size(); i += index(at_once))
      all[i] = run_tuning(own, sizes, runs[i]);
  });
  return all;
}

std::int64_t steps_to(const std::vector<TuningPoint>& points, double wanted) {
  const auto at = std::find_if(points.begin(), points.end(),
                               [&](const TuningPoint& p) { return p.accuracy >= wanted; });
  return at == points.end() ? -1 : at->step;
}

double best_accuracy(const std::vector<TuningPoint>& points) {
  double best = 0;
  for (const TuningPoint& point : points) best = std::max(best, point.accuracy);
  return best;
}

}  // namespace aisc
