#include "08_moe/more/equal_flops.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "08_moe/expert_parallel.h"
#include "08_moe/host_ids.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

// A layer of experts that counts, in passes without training, which expert each token chooses
// first: by the router's weight, as a switch does.
class CountedExperts final : public Layer {
 public:
  CountedExperts(const Rank& rank, std::unique_ptr<Layer> inner, std::vector<std::int64_t>& loads)
      : Layer(rank, inner->name()), inner_(std::move(inner)), loads_(loads) {
    for (const Parameter* p : inner_->parameters())
      if (p->name.ends_with(".router.weight")) router_ = p;
    if (!router_) fail(name_ + ": no router.weight among its parameters");
  }

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    if (!pass.training) count(x);
    return inner_->forward(std::move(x), saved, pass);
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    return inner_->backward(std::move(dy), saved, pass);
  }
  std::vector<Parameter*> parameters() override { return inner_->parameters(); }

 private:
  void count(const Tensor& x) const {
    const std::int64_t n = x.shape().rows(), E = router_->shape[0];
    const Tensor logits({n, E}, x.dtype(), x.device()), chosen({n, 1}, DType::I32, x.device());
    ops::matmul(logits, as_rows(x), router_->value(), {.transpose = ops::Transpose::Second});
    ops::top_k(chosen, logits);
    loads_.resize(index(E));
    for (const std::int32_t expert : ids_of(chosen)) ++loads_[index(expert)];
  }

  const std::unique_ptr<Layer> inner_;
  std::vector<std::int64_t>& loads_;
  const Parameter* router_ = nullptr;
};

// `loads` has a row for each block, and must outlive what is made.
StepParts counted_experts(ExpertLoads& loads) {
  StepParts parts = expert_parallel();
  parts.experts = [make_all = parts.experts, &loads](GptParts all, Mesh* mesh) {
    GptParts with = make_all(std::move(all), mesh);
    with.mlp = [make = with.mlp, &loads](const GptParts::Wanted& w) -> std::unique_ptr<Layer> {
      if (!w.config.has_experts(w.block)) return make(w);
      return std::make_unique<CountedExperts>(w.rank, make(w), loads.at(index(w.block)));
    };
    return with;
  };
  return parts;
}

std::int64_t tokens_of(const std::vector<std::int64_t>& loads) {
  const std::int64_t all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  if (all == 0) fail("loads: no token was counted");
  return all;
}

double mean_of(const ExpertLoads& loads, double (*of_layer)(const std::vector<std::int64_t>&)) {
  double sum = 0;
  for (const auto& layer : loads) sum += of_layer(layer);
  return loads.empty() ? 0 : sum / static_cast<double>(loads.size());
}

}  // namespace

double busiest_share(const std::vector<std::int64_t>& loads) {
  const auto all = static_cast<double>(tokens_of(loads));
  return static_cast<double>(*std::ranges::max_element(loads)) / all;
}

double load_entropy(const std::vector<std::int64_t>& loads) {
  const auto all = static_cast<double>(tokens_of(loads));
  double entropy = 0;
  for (const std::int64_t tokens : loads)
    if (const double share = static_cast<double>(tokens) / all; share > 0)
      entropy -= share * std::log(share);
  return loads.size() == 1 ? 1 : entropy / std::log(static_cast<double>(loads.size()));
}

double StudyPoint::busiest() const { return mean_of(loads, busiest_share); }
double StudyPoint::entropy() const { return mean_of(loads, load_entropy); }

std::vector<StudyPoint> run_study(const Rank& rank, const ExpertStudy& study) {
  constexpr std::uint64_t kSamples = 1;  // their order, for all seeds
  const GptConfig& model = study.config.model;
  ExpertLoads loads(index(model.layers));
  Trainer trainer(rank, study.config, counted_experts(loads));
  const BatchSampler data(study.training, model.context, kSamples);
  std::vector<Batch> windows;
  windows.push_back(even_windows(study.validation, model.context, study.windows, rank.device));
  std::vector<StudyPoint> points;
  const auto look = [&] {
    for (auto& layer : loads) layer.clear();
    StudyPoint& point = points.emplace_back();
    point.step = trainer.steps_taken();
    point.loss = trainer.evaluate(windows);
    for (const auto& layer : loads)
      if (!layer.empty()) point.loads.push_back(layer);
  };
  look();
  while (trainer.steps_taken() < study.config.steps) {
    trainer.step(data);
    if (trainer.steps_taken() % study.look_every == 0) look();
  }
  return points;
}

std::vector<std::vector<StudyPoint>> run_studies(const std::vector<ExpertStudy>& studies,
                                                 int at_once) {
  std::vector<std::vector<StudyPoint>> all(studies.size());
  launch({.ranks = at_once}, [&](const Rank& rank) {
    const auto alone = make_self_communicator("study");
    const Rank own{*alone, rank.device, rank.clock, rank.trace};
    for (std::size_t i = index(rank.world.rank()); i < studies.size(); i += index(at_once))
      all[i] = run_study(own, studies[i]);
  });
  return all;
}

TrainConfig study_config(std::int64_t experts, std::int64_t steps, std::uint64_t seed,
                         double balance) {
  constexpr double kRate = 2e-3;
  TrainConfig config{
      .model = {.layers = 3, .heads = 4, .width = 64, .context = 64, .vocabulary = 256},
      .batch = 16,
      .steps = steps,
      .learning_rate = kRate,
      .min_learning_rate = kRate / 20,
      .warmup_steps = std::min<std::int64_t>(200, steps / 10),
      .seed = seed};
  if (experts > 1)
    config.model.experts = {
        .count = experts, .every = 1, .router = "switch", .capacity = 2, .balance = balance};
  return config;
}

}  // namespace aisc
