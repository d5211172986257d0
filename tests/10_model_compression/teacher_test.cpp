// Training beside a teacher: the loss in a model, the same on every layout of ranks, what it takes
// of a device, and that students learn more from the same text.
#include "10_model_compression/teacher.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/nn/embedding.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/serial_run.h"

namespace aisc::teaching {
namespace {

// Of a model with other sizes, another precision and another padding than its students.
GptConfig teacher_config(std::int64_t vocabulary = 13) {
  return {.layers = 3,
          .heads = 2,
          .width = 20,
          .context = 12,
          .vocabulary = vocabulary,
          .vocabulary_multiple = 5,
          .dtype = DType::F32};
}

// Weights ten times as large as those that are drawn for training: logits that differ.
Teacher some_teacher(const Rank& rank, const GptConfig& config) {
  Teacher teacher(rank, config);
  teacher.parameters().initialize(7);
  ops::scale(teacher.parameters().values(), teacher.parameters().values(), 10);
  return teacher;
}
MakeTeacher make_teacher(std::int64_t vocabulary = 13) {
  return [vocabulary](const Rank& rank) { return some_teacher(rank, teacher_config(vocabulary)); };
}

using RunSteps = std::vector<RunRecord>;
RunSteps distilled_run(const RankLayout& layout, const TrainConfig& config, int steps,
                       const DistillOptions& options = {}) {
  return run_layout(layout, config, steps, distilled(config, make_teacher(), options));
}

TEST(Teacher, AnswersAsItsModelWould) {
  TestWorld world;
  const Teacher teacher = some_teacher(world.rank, teacher_config());
  const Tensor tokens = random_tokens(world.device, 3, 12, 13, 1);
  const Tensor logits = teacher.logits(tokens);
  EXPECT_EQ(logits.shape(), (Shape{3, 12, 15}));
  const Model model = make_gpt(world.rank, teacher_config());
  ParameterStore weights(world.device, all_units(model), {.value_dtype = DType::F32});
  weights.initialize(7);
  ops::scale(weights.values(), weights.values(), 10);
  EXPECT_TRUE(same_bits(logits, forward(model, tokens)));
  const Teacher made_of_parts(teacher_config(), make_gpt(world.rank, teacher_config()),
                              ParameterStore(world.device, {}, {}));
  EXPECT_EQ(made_of_parts.config().layers, 3);
}

TEST(Teacher, HasWeightsAlone) {
  TestWorld world;
  const Ledger before = world.device.ledger();
  Teacher teacher(world.rank, teacher_config());
  const Ledger after = world.device.ledger();
  EXPECT_EQ(after[Purpose::Parameters].live_bytes - before[Purpose::Parameters].live_bytes,
            4 * teacher.parameters().layout().count());
  EXPECT_EQ(after.total.live_bytes - before.total.live_bytes,
            4 * teacher.parameters().layout().count());
}

TEST(Teacher, TokensComeBesideTargets) {
  TestWorld world;
  Batch batch{ids_tensor({1, 2, 3, 4, 5, 6}, world.device).reshaped({2, 3}),
              ids_tensor({2, 3, 7, 5, 6, 8}, world.device).reshaped({2, 3})};
  const Batch both = with_tokens(std::move(batch));
  EXPECT_EQ(to_doubles(both.tokens), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(both.targets.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(to_doubles(both.targets), (std::vector<double>{2, 3, 7, 5, 6, 8, 1, 2, 3, 4, 5, 6}));
}

// The model's loss alone, on a micro-batch.
struct OneLoss {
  explicit OneLoss(const DistillOptions& options = {})
      : loss(world.rank, student(), some_teacher(world.rank, teacher_config()), options) {
    targets = random_tokens(world.device, 2, 11, 13, 2);
    targets.values<std::int32_t>()[4] = -1;
    tokens = random_tokens(world.device, 2, 11, 13, 3);
    both = with_tokens({tokens.share(), targets.share()}).targets;
    logits = random_tensor({2, 11, 16}, DType::F64, world.device, "logits", 2);
  }
  static GptConfig student() { return odd_config(DType::F64); }

  TestWorld world;
  DistillLoss loss;
  Tensor targets, tokens, both, logits;
};

TEST(Teacher, IsNotAskedInEvaluation) {
  OneLoss one;
  const CrossEntropy plain(one.world.rank, 13);
  Saved nothing = Saved::nothing();
  const double expected = plain.forward(one.logits.clone(), one.targets, nothing, {});
  std::int64_t products = 0;
  one.world.device.listen([&](const OpCost& cost) { products += cost.product ? 1 : 0; });
  EXPECT_EQ(one.loss.forward(one.logits.clone(), one.targets, nothing, {}), expected);
  EXPECT_EQ(one.loss.forward(one.logits.clone(), one.both, nothing, {}), expected)
      << "a forward that is to be repeated";
  EXPECT_EQ(products, 0) << "the teacher is asked where nothing is kept";
  Saved saved;
  EXPECT_EQ(one.loss.forward(one.logits.clone(), one.both, saved, {}), expected)
      << "what is reported is the cross-entropy, in training, too";
  EXPECT_GT(products, 0);
  one.world.device.listen(nullptr);
}

TEST(Teacher, ErrorsSayWhatDoesNotFit) {
  OneLoss one;
  Saved saved;
  EXPECT_TRUE(error_says([&] { one.loss.forward(one.logits.clone(), one.targets, saved, {}); },
                         {"distill", "targets alone", "with_tokens()"}));
  const auto make = [&](std::int64_t vocabulary, const GptConfig& student) {
    DistillLoss(one.world.rank, student, some_teacher(one.world.rank, teacher_config(vocabulary)),
                {});
  };
  EXPECT_TRUE(error_says([&] { make(12, OneLoss::student()); },
                         {"vocabulary of 12 tokens", "one of 13", "tokenizer"}));
  GptConfig longer = OneLoss::student();
  longer.context = 13;
  EXPECT_TRUE(error_says([&] { make(13, longer); }, {"sees 12 tokens", "context is 13"}));
  TrainConfig config = odd_training();
  config.tp = 2;
  EXPECT_TRUE(error_says([&] { distilled(config, make_teacher()); }, {"tp is 2, expected 1"}));
  config.tp = 1;
  config.cp = 3;
  EXPECT_TRUE(error_says([&] { distilled(config, make_teacher()); }, {"cp is 3, expected 1"}));
  config.cp = 1;
  EXPECT_TRUE(error_says([&] { distilled(config, make_teacher(), {.temperature = 0}); },
                         {"temperature is 0"}));
  EXPECT_TRUE(
      error_says([&] { distilled(config, make_teacher(), {.hard = 2}); }, {"hard labels is 2"}));
}

// A device without numbers counts what a teacher adds: its weights, and in a step its logits.
TEST(Teacher, IsInThePlanOfAStep) {
  const TrainConfig config = odd_training();
  const auto ledger_of = [&](const StepParts& parts) {
    Ledger ledger;
    const Machine machine = find_machine("limitless");
    launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
      Trainer trainer(rank, config, parts);
      const std::vector<std::uint8_t> zeros(12);
      trainer.step(BatchSampler(zeros, 11, 1));
      ledger = rank.device.ledger();
    });
    return ledger;
  };
  const Ledger alone = ledger_of({}), beside = ledger_of(distilled(config, make_teacher()));
  TestWorld world;
  Teacher teacher(world.rank, teacher_config());
  EXPECT_EQ(beside[Purpose::Parameters].live_bytes - alone[Purpose::Parameters].live_bytes,
            4 * teacher.parameters().layout().count());
  const std::int64_t logits = 21 * 11 * 15 * 4;  // (B, T, W) F32
  EXPECT_GE(beside[Purpose::Activations].peak_bytes - alone[Purpose::Activations].peak_bytes,
            logits);
}

// ---- with the loss of exercise 10.7 -------------------------------------------------------------

TEST(Distilled, LossHasTheGradientOfBothParts) {
  const DistillOptions options{.temperature = 3, .hard = 0.3};
  OneLoss one(options);
  Saved saved;
  one.loss.forward(one.logits.clone(), one.both, saved, {});
  const Tensor gradient = one.loss.backward(saved, 0.25);
  EXPECT_EQ(saved.size(), 0u);
  const Tensor wanted = one.loss.teacher().logits(one.tokens);
  const Tensor hard({22}, DType::F64, one.world.device), soft({22}, DType::F64, one.world.device);
  const auto value = [&] {
    distill_loss(hard, soft, as_rows(one.logits), as_rows(wanted),
                 one.targets.view().reshaped({22}), 13, options);
    double sum = 0;
    for (std::size_t n = 0; n < 22; ++n)
      sum += 0.3 * hard.values<double>()[n] + 0.7 * soft.values<double>()[n];
    return 0.25 * sum;
  };
  EXPECT_TRUE(check_gradient(value, one.logits, gradient));
}

TEST(Distilled, WithHardLabelsAloneIsTrainingAlone) {
  const TrainConfig config = odd_training();
  EXPECT_TRUE(same_steps(run_layout({}, config, 3), distilled_run({}, config, 3, {.hard = 1})));
}

TEST(Distilled, EqualsTheSerialRunOnAnyLayout) {
  const RunSteps serial = distilled_run({}, odd_training(), 3);
  ASSERT_FALSE(same_steps(run_layout({}, odd_training(), 3), serial)) << "the teacher says nothing";
  for (const std::int64_t micro_batches : {3, 7})
    EXPECT_TRUE(same_steps(serial, distilled_run({}, odd_training(micro_batches), 3)))
        << micro_batches << " micro-batches";
  for (const int ranks : {2, 3})
    EXPECT_TRUE(same_steps(serial, distilled_run({.ranks = ranks}, odd_training(3), 3)))
        << ranks << " ranks";
  EXPECT_TRUE(same_steps(serial, distilled_run({}, odd_training(3, "block"), 3))) << "recomputed";
}

// ---- a language of pairs ------------------------------------------------------------------------

constexpr std::int64_t kLetters = 12;

// Which letter comes next depends on the last one alone, with probabilities that are drawn: some
// are likely, most are not.
struct PairLanguage {
  explicit PairLanguage(std::uint64_t seed) : random(seed, "pairs") {
    for (std::int64_t i = 0; i < kLetters * kLetters; ++i)
      scores.push_back(1.5 * random.normal(static_cast<std::uint64_t>(i)));
  }
  std::vector<std::uint8_t> text(std::size_t letters, std::uint64_t first) const {
    std::vector<std::uint8_t> written{0};
    while (written.size() < letters) {
      const double* row = scores.data() + written.back() * kLetters;
      double sum = 0;
      for (std::int64_t c = 0; c < kLetters; ++c) sum += std::exp(row[c]);
      double left = sum * static_cast<double>(random.bits(first + written.size())) * 0x1p-32;
      std::uint8_t next = 0;
      while (next + 1 < kLetters && left >= std::exp(row[next])) left -= std::exp(row[next++]);
      written.push_back(next);
    }
    return written;
  }
  // Knows them all: its only layer looks up the scores of what may follow.
  Teacher teacher(const Rank& rank) const {
    GptConfig config = teacher_config(kLetters);
    Model model;
    model.layers.push_back(
        std::make_unique<Embedding>(rank, token_table(kLetters, kLetters, kLetters), DType::F32));
    ParameterStore table(rank.device, all_units(model),
                         {.value_dtype = DType::F32, .gradients = false});
    write_doubles(table.parameters()[0]->value(), scores);
    return {config, std::move(model), std::move(table)};
  }

  Philox random;
  std::vector<double> scores;  // (letters, letters)
};

TrainConfig student_of_pairs(std::uint64_t seed) {
  TrainConfig config;
  config.model = {.layers = 1,
                  .heads = 2,
                  .width = 16,
                  .context = 8,
                  .vocabulary = kLetters,
                  .vocabulary_multiple = 4,
                  .dtype = DType::F32};
  config.batch = 8;
  config.steps = 120;
  config.warmup_steps = 10;
  config.learning_rate = 1e-2;
  config.seed = seed;
  return config;
}

// The loss on a text that was not trained on.
double loss_of_student(const TrainConfig& config, const PairLanguage& language,
                       const StepParts& parts) {
  TestWorld world;
  Trainer trainer(world.rank, config, parts);
  const auto seen = language.text(400, 1000), unseen = language.text(2000, 10000);
  const BatchSampler data(seen, config.model.context, config.seed);
  for (std::int64_t i = 0; i < config.steps; ++i) trainer.step(data);
  const Batch windows = even_windows(unseen, config.model.context, 200, world.device);
  return trainer.evaluate({&windows, 1});
}

// 400 letters say little of 144 pairs; a teacher says of each letter what else might have come. The
// least gain is .11 nats, of a loss of 1.9.
TEST(Distilled, StudentsLearnMoreOfTheSameTextInAsManySteps) {
  constexpr double kGain = 0.05;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const PairLanguage language(seed);
    const TrainConfig config = student_of_pairs(seed);
    const MakeTeacher make = [&](const Rank& rank) { return language.teacher(rank); };
    const double alone = loss_of_student(config, language, {});
    for (const double hard : {0.5, 0.0}) {
      const double taught =
          loss_of_student(config, language, distilled(config, make, {.hard = hard}));
      EXPECT_LT(taught, alone - kGain) << "seed " << seed << ", weight of hard labels " << hard;
    }
  }
}

}  // namespace
}  // namespace aisc::teaching
