// The layer that fine-tuning adds, what it begins with, and how it is judged.
#include "12_encoders/fine_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "12_encoders/bert.h"
#include "12_encoders/more/fine_tuned.h"
#include "tests/12_encoders/some_labels.h"
#include "tests/nn/layer_check.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/numbers.h"
#include "tests/support/same_run.h"

namespace aisc {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

constexpr std::int64_t kLabels = 4;

GptConfig tuned_sizes(double dropout = 0, DType dtype = DType::F64) {
  GptConfig config = odd_config(dtype, dropout);
  config.encoder_blocks = config.layers;
  return config;
}

TrainConfig tuned_config(double dropout = 0.1, DType dtype = DType::F64) {
  TrainConfig config;
  config.model = tuned_sizes(dropout, dtype);
  config.gradient_dtype = dtype == DType::F64 ? DType::F64 : DType::F32;
  config.batch = 4;
  config.micro_batches = 2;
  config.steps = 60;
  config.warmup_steps = 2;
  config.learning_rate = 3e-3;
  return config;
}

SomeLabels some_labels(std::uint64_t seed = 1) { return {11, 13, kLabels, seed}; }

// A classifier of 3 labels on 2 columns, with weights that are set.
struct SmallClassifier {
  SmallClassifier()
      : layer(world.rank, 3, 2),
        store(world.device, {{"classifier", layer.parameters()}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    write_doubles(store.parameters()[0]->value(), {1, 0, 0, 2, 3, -1});
    write_doubles(store.parameters()[1]->value(), {10, 20, 30});
  }
  TestWorld world;
  Classifier layer;
  ParameterStore store;
  const Tensor rows = from_doubles({1, 2, -1, 0.5}, {2, 2}, DType::F64, world.device);
};

TEST(FineTuning, ScoresEachLabel) {
  SmallClassifier of;
  Saved saved;
  const Tensor scores = of.layer.forward(of.rows.share(), saved, {});
  EXPECT_EQ(scores.shape(), (Shape{2, 3}));
  EXPECT_THAT(to_doubles(scores), ElementsAre(11, 24, 31, 9, 21, 26.5))
      << "scores = rows W^T + b: row (1, 2) gives 1*1 + 2*0 + 10, 1*0 + 2*2 + 20, 1*3 - 2*1 + 30";
}

TEST(FineTuning, LearnsFromEachText) {
  SmallClassifier of;
  Saved saved;
  of.layer.forward(of.rows.share(), saved, {});
  const Tensor dscores = from_doubles({1, 0, 2, 0, -1, 1}, {2, 3}, DType::F64, of.world.device);
  const Tensor drows = of.layer.backward(dscores.share(), saved, {});
  EXPECT_THAT(to_doubles(drows), ElementsAre(7, -2, 3, -3))
      << "drows = dscores W: of the first text 1 (1, 0) + 2 (3, -1)";
  EXPECT_THAT(to_doubles(of.store.parameters()[0]->grad()), ElementsAre(1, 2, 1, -0.5, 1, 4.5))
      << "dW = dscores^T rows: of label 2 it is 2 (1, 2) + 1 (-1, .5)";
  EXPECT_THAT(to_doubles(of.store.parameters()[1]->grad()), ElementsAre(1, -1, 3))
      << "db is the sum over the texts";
  EXPECT_EQ(saved.size(), 0u) << "backward pops what forward kept";
}

TEST(FineTuning, HasTheGradientsOfItsScores) {
  TestWorld world;
  const std::int64_t C = drawn("columns", 1, 9);
  Classifier layer(world.rank, drawn("labels", 2, 9), C);
  check_layer_gradients(world, layer, {drawn("texts", 1, 5), C}, {});
}

// A pipeline without bubbles computes weight gradients later.
TEST(FineTuning, DefersTheGradientOfItsWeights) {
  SmallClassifier of;
  Saved saved;
  of.layer.forward(of.rows.share(), saved, {});
  DeferredGrads later;
  const Tensor dscores = from_doubles({1, 0, 2, 0, -1, 1}, {2, 3}, DType::F64, of.world.device);
  of.layer.backward(dscores.share(), saved, {.deferred = &later});
  EXPECT_FALSE(of.store.parameters()[0]->has_grad) << "dW is for weight_grad() to compute";
  later.run_all();
  EXPECT_THAT(to_doubles(of.store.parameters()[0]->grad()), ElementsAre(1, 2, 1, -0.5, 1, 4.5));
}

// ---- weights to begin with ----------------------------------------------------------------------

// What pre-training left: of every parameter that BERT has numbers of its own.
ReadPretrained some_pretrained() {
  return [](const Parameter& parameter, View whole) {
    if (parameter.name.starts_with("classifier")) return false;
    CpuDevice host;
    host.copy(whole, random_tensor(parameter.global_shape, whole.dtype(), host,
                                   "pretrained " + parameter.name, 0.3));
    return true;
  };
}

TEST(FineTuning, BeginsWithWhatPreTrainingKnows) {
  for (const DType dtype : {DType::F64, DType::BF16}) {
    TestWorld world;
    const TrainConfig config = tuned_config(0, dtype);
    Trainer drawn(world.rank, config, fine_tuned({.labels = kLabels}));
    Trainer trainer(world.rank, config, fine_tuned({.labels = kLabels}));
    const Begun begun = begin_from_pretrained(trainer, some_pretrained());
    EXPECT_THAT(begun.drawn, ElementsAre("classifier.weight", "classifier.bias"));
    EXPECT_EQ(std::ssize(begun.taken) + 2, std::ssize(trainer.parameters().parameters()))
        << "a parameter is either taken or drawn";
    EXPECT_THAT(begun.taken, Contains("pooler.weight"));
    for (std::size_t i = 0; i < trainer.parameters().parameters().size(); ++i) {
      const Parameter& p = *trainer.parameters().parameters()[i];
      const bool is_new = p.name.starts_with("classifier");
      const Tensor expected =
          random_tensor(p.shape, dtype, world.device, "pretrained " + p.name, 0.3);
      const Parameter& before = *drawn.parameters().parameters()[i];
      EXPECT_TRUE(same_bits(p.value(), is_new ? ConstView(before.value()) : ConstView(expected)))
          << p.name
          << (is_new ? ": stays as it was drawn"
              : dtype == DType::BF16
                  ? ": is what was read; if it is what was drawn, its master, of "
                    "which it is rounded, was not filled"
                  : ": is what was read");
      if (dtype != DType::BF16 || is_new) continue;
      const Tensor exact =
          random_tensor(p.shape, DType::F32, world.device, "pretrained " + p.name, 0.3);
      EXPECT_TRUE(same_bits(trainer.optimizer().master(i), exact.view().flat(0, exact.count())))
          << p.name << ": a master is as exact as what was read";
    }
    trainer.step(some_labels());
  }
}

// Updates each parameter in two pieces, as shards cut it.
class TwoPieces final : public Reducer {
 public:
  using Reducer::Reducer;
  std::vector<OptimizerSlice> slices() const override {
    std::vector<OptimizerSlice> pieces;
    for (const OptimizerSlice& whole : Reducer::slices()) {
      const std::int64_t n = whole.weight.count(), middle = n / 3;
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, middle}, {middle, n}})
        pieces.push_back({whole.name, whole.weight.flat(begin, end - begin),
                          whole.gradient.flat(begin, end - begin), whole.decay, whole.parameter,
                          begin});
    }
    return pieces;
  }
  void finish() override {}
};

TEST(FineTuning, FillsWhatARankUpdates) {
  TestWorld world;
  StepParts parts;
  parts.reducer = [](const Rank& rank, const Model& /*model*/, ParameterStore& store) {
    return std::make_unique<TwoPieces>(rank, store);
  };
  Trainer trainer(world.rank, tuned_config(0), fine_tuned({.labels = kLabels}, parts));
  // As if of this matrix another rank had the first half.
  Parameter* half = nullptr;
  for (Parameter* p : trainer.parameters().parameters())
    if (p->name == "blocks.1.mlp.fc.weight") half = p;
  ASSERT_TRUE(half);
  half->global_shape = half->shape.with(0, 2 * half->shape[0]);
  half->split_dim = 0;
  half->split_begin = half->shape[0];
  const Begun begun = begin_from_pretrained(trainer, some_pretrained());
  EXPECT_THAT(begun.drawn, ElementsAre("classifier.weight", "classifier.bias"))
      << "a name for both pieces";
  for (const Parameter* p : trainer.parameters().parameters()) {
    if (p->name.starts_with("classifier")) continue;
    const Tensor whole =
        random_tensor(p->global_shape, DType::F64, world.device, "pretrained " + p->name, 0.3);
    const std::vector<double> all = to_doubles(whole);
    const std::int64_t n = p->shape.count(), first = p == half ? n : 0, slice = n / 3;
    const auto from = [&](std::int64_t begin, std::int64_t count) {
      return std::vector<double>(all.begin() + begin, all.begin() + begin + count);
    };
    std::vector<double> anew = from(first, slice);
    for (const double x : from(first, n - slice)) anew.push_back(x);
    EXPECT_TRUE(numbers_are("in slices of " + std::to_string(slice) + " and " +
                                std::to_string(n - slice) + " elements" +
                                (p == half ? " of the second half of it: " : ": ") + p->name,
                            p->value(), from(first, n),
                            {{"each slice began with the parameter's first element", anew},
                             {"this rank had the first part of the whole", from(0, n)}},
                            0));
  }
}

// ---- the whole model ----------------------------------------------------------------------------

TEST(FineTunedGiven, LeavesWhatIsForPreTrainingAlone) {
  TestWorld world;
  const TestGpt gpt(world, tuned_sizes(), 1, DType::F64,
                    fine_tuned_parts({.labels = kLabels}, gpt2_parts(), nullptr));
  std::map<std::string, Shape> shapes;
  for (const Parameter* p : gpt.store.parameters()) shapes[p->name] = p->shape;
  EXPECT_EQ(shapes.at("classifier.weight"), (Shape{kLabels, 15}));
  EXPECT_EQ(shapes.at("classifier.bias"), (Shape{kLabels}));
  EXPECT_EQ(shapes.at("pooler.weight"), (Shape{15, 15}));
  EXPECT_EQ(shapes.at("wte.weight"), (Shape{16, 15}));
  EXPECT_EQ(shapes.count("segments.weight"), 1u);
  for (const auto& [name, shape] : shapes)
    EXPECT_FALSE(name.starts_with("transform") || name.starts_with("head") ||
                 name.starts_with("next_sentence"))
        << name;
}

TEST(FineTuning, HasTheGradientsOfItsLoss) {
  TestWorld world;
  TestGpt gpt(world, tuned_sizes(), 1, DType::F64,
              fine_tuned_parts({.labels = kLabels}, gpt2_parts(), nullptr));
  const MicroBatch micro =
      micro_batch_of(some_labels().batch(world.device, 2, 5), {.first_sample = 2, .terms = 5});
  const Tensor &tokens = micro.batch.tokens, &labels = micro.batch.targets;
  forward_backward(gpt.model, tokens, labels, micro.pass, 1.0 / 5);
  Pass pass = micro.pass;
  pass.training = false;
  const auto loss = [&] { return evaluate(gpt.model, tokens, labels, {}, pass) / 5; };
  EXPECT_GT(loss(), 0);
  for (const Parameter* p : gpt.store.parameters())
    EXPECT_TRUE(check_gradient(loss, p->value(), p->grad(), {.tolerance = 1e-6, .samples = 12}))
        << p->name;
}

TEST(FineTuning, SeesNothingOfThePadding) {
  TestWorld world;
  const TestGpt gpt(world, tuned_sizes(), 1, DType::F64,
                    fine_tuned_parts({.labels = kLabels}, gpt2_parts(), nullptr));
  const MicroBatch micro =
      micro_batch_of(some_labels().batch(world.device, 0, 6), {.training = false});
  const double sum = evaluate(gpt.model, micro.batch.tokens, micro.batch.targets, {}, micro.pass);
  const Tensor other = micro.batch.tokens.clone();
  std::int64_t padded = 0;
  for (std::int64_t b = 0; b < 6; ++b)
    for (std::int64_t t = micro.batch.lengths.data<std::int32_t>()[b]; t < 11; ++t, ++padded)
      other.data<std::int32_t>()[b * 11 + t] = 7;
  EXPECT_GT(padded, 0);
  EXPECT_EQ(evaluate(gpt.model, other, micro.batch.targets, {}, micro.pass), sum);
}

// A few texts by heart; and an average over them says so.
TEST(FineTuning, LearnsAndIsJudged) {
  TestWorld world;
  class Eight final : public SampleSource {  // the same eight texts again and again
   public:
    Batch batch(Device& device, std::int64_t first, std::int64_t count) const override {
      return all_.batch(device, first % 8, count);
    }
    double terms(std::int64_t /*first*/, std::int64_t count) const override {
      return static_cast<double>(count);
    }
    std::unique_ptr<const SampleSource> copy() const override { return std::make_unique<Eight>(); }

   private:
    SomeLabels all_ = some_labels();
  } data;
  Trainer trainer(world.rank, tuned_config(0), fine_tuned({.labels = kLabels}));
  std::vector<Batch> windows;
  for (const auto& [first, count] : {std::pair{0, 3}, {3, 4}, {7, 1}})
    windows.push_back(data.batch(world.device, first, count));
  const Judged before = judge(world.rank, trainer, windows);
  EXPECT_EQ(before.texts, 8);
  std::int64_t right = 0;
  for (const Batch& window : windows) {
    const MicroBatch micro = micro_batch_of(window.share(), {.training = false});
    const std::vector<double> scores =
        to_doubles(forward(trainer.model(), window.tokens, {}, micro.pass));
    for (auto row = scores.begin(); row != scores.end(); row += kLabels) {
      const auto text = (row - scores.begin()) / kLabels;
      const auto label = std::max_element(row, row + kLabels) - row;
      right += label == window.targets.data<std::int32_t>()[text] ? 1 : 0;
    }
  }
  EXPECT_EQ(before.right, right);
  EXPECT_DOUBLE_EQ(before.accuracy(), static_cast<double>(right) / 8);
  EXPECT_EQ(before.loss, trainer.evaluate(windows));
  for (int i = 0; i < 60; ++i) trainer.step(data);
  const Judged after = judge(world.rank, trainer, windows);
  EXPECT_EQ(after.right, 8);
  EXPECT_LT(after.loss, 0.75 * before.loss);
}

TEST(FineTunedGiven, SaysWhatDoesNotFit) {
  EXPECT_TRUE(
      error_says([] { fine_tuned({.labels = 1}); }, {"fine-tuning: 1 labels, expected 2 or more"}));
  TestWorld world;
  TrainConfig config = tuned_config();
  Trainer trainer(world.rank, config, fine_tuned({.labels = kLabels}));
  std::vector<Batch> windows;
  windows.push_back(some_labels().batch(world.device, 0, 3));
  windows[0].picked = ids_tensor({0, 11}, world.device);
  EXPECT_TRUE(error_says([&] { judge(world.rank, trainer, windows); },
                         {"2 places are picked of 3 texts, expected one of each"}));
  Trainer bert_of_pairs(world.rank, config, bert({.batch = 4, .predictions = 2}));
  const SomePairs pairs(11, 13, 2);
  windows[0] = pairs.batch(world.device, 0, 3);
  EXPECT_TRUE(error_says([&] { judge(world.rank, bert_of_pairs, windows); },
                         {"a loss that counts nothing"}));
}

}  // namespace
}  // namespace aisc
