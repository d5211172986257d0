// BERT on every kind of layout: data, stages, parts of layers, shared tokens, shared sequences in
// which every token sees all others, experts, and several at once: losses, norms of gradients,
// gradients and weights of the serial run, in F64. Samples have lengths, and numbers of masked
// words, that differ.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "12_encoders/bert.h"
#include "common/model/emulated_device.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/12_encoders/some_pairs.h"
#include "tests/support/ledger_checks.h"

namespace aisc {
namespace {

constexpr int kBertSteps = 3;
constexpr std::int64_t kPredictions = 3;

struct BertCase {
  LayoutCase layout;
  ContextForm form = ContextForm::Zigzag;  // of cp, where scores are not stored
};
std::ostream& operator<<(std::ostream& out, const BertCase& c) {
  return out << c.layout
             << (c.form == ContextForm::Ring      ? " ring"
                 : c.form == ContextForm::Ulysses ? " ulysses"
                                                  : "");
}

TrainConfig bert_config_of(const BertCase& c) {
  TrainConfig config = config_of(c.layout);
  config.model.encoder_blocks = config.model.layers;
  return config;
}

StepParts bert_parts_of(const BertCase& c) {
  const LayoutCase& l = c.layout;
  const std::int64_t batch = bert_config_of(c).batch;
  StepParts parts = parts_of(l);
  if (c.form != ContextForm::Zigzag) {
    // What parts_of() has put around the core is made anew, in this form.
    StepParts of_form = context_parallel(c.form);
    parts.context = of_form.context;
    parts.core = of_form.core;
    if (l.ep > 0) parts = expert_parallel(std::move(parts));
  }
  return bert({.batch = batch, .predictions = kPredictions}, std::move(parts));
}

// Trains on pairs, whatever it is given.
struct PairsTrainer {
  PairsTrainer(const Rank& rank, const TrainConfig& config, const StepParts& parts)
      : trainer(rank, config, parts),
        data(config.model.context, config.model.vocabulary, kPredictions, config.seed) {}
  StepReport step(const BatchSampler& /*text*/) {
    StepReport report = trainer.step(data);
    report.loss += 10 * report.extra;  // and what routers add
    return report;
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Trainer trainer;
  SomePairs data;
};

// What one rank leaves with such a configuration, made once.
const std::vector<RunRecord>& serial_bert(const BertCase& c) {
  static std::map<std::string, std::vector<RunRecord>> runs;
  TrainConfig config = bert_config_of(c);
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {}", config.model.layers, config.model.context,
                  config.batch, config.micro_batches, config.clip, c.layout.stored,
                  config.model.experts.count, config.model.experts.router);
  config.pp = config.tp = config.cp = config.ep = 1;
  config.recompute = {};
  auto& run = runs[key];
  if (run.empty())
    run = run_layout<PairsTrainer>(
        {.ranks = 1}, config, kBertSteps,
        bert({.batch = config.batch, .predictions = kPredictions}, parts_of_one(c.layout)));
  return run;
}

const BertCase kBertCases[] = {
    {{.dp = 2, .micro = 1}},
    {{.dp = 3, .virtual_time = true, .micro = 2}},
    {{.dp = 2, .zero = 1}},
    {{.dp = 2, .zero = 2, .recompute = true}},
    {{.dp = 2, .zero = 3, .micro = 2}},
    {{.dp = 3, .zero = 3, .owners = true}},
    {{.pp = 2, .schedule = "gpipe"}},
    {{.pp = 2, .schedule = "1f1b", .recompute = true}},
    {{.pp = 2, .schedule = "interleaved", .chunks = 2}},
    {{.pp = 2, .schedule = "zb-h1", .virtual_time = true}},
    {{.pp = 2, .schedule = "zb-v", .chunks = 2}},
    {{.pp = 4, .schedule = "1f1b", .layers = 2}},  // the embedding is a stage, the head, too
    {{.tp = 2, .micro = 1}},
    {{.tp = 3, .recompute = true, .micro = 2}},
    {{.tp = 2, .sequence = true, .micro = 1}},
    {{.tp = 3, .recompute = true, .virtual_time = true, .sequence = true, .micro = 2}},
    {{.tp = 2, .recompute = true, .activations = true}},
    {{.cp = 2, .micro = 1}},
    {{.cp = 2, .micro = 2}, ContextForm::Ring},
    {{.cp = 3, .micro = 1}, ContextForm::Ring},
    {{.cp = 2, .micro = 1}, ContextForm::Ulysses},
    {{.recompute = true, .cp = 3, .micro = 2}, ContextForm::Ulysses},
    {{.dp = 2, .stored = true, .micro = 1}},
    {{.stored = true, .cp = 2, .micro = 1}},
    {{.recompute = true, .stored = true, .cp = 3, .micro = 2}},
    {{.tp = 2, .sequence = true, .cp = 2, .micro = 1}, ContextForm::Ring},
    {{.dp = 2, .ep = 1, .micro = 1}},
    {{.dp = 2, .ep = 2, .micro = 2}},
    {{.dp = 2, .tp = 2, .zero = 1, .sequence = true, .ep = 2, .router = "top2", .micro = 1}},
    {{.dp = 2, .cp = 2, .ep = 2, .micro = 1}},
    {{.dp = 2, .pp = 2, .zero = 1, .schedule = "1f1b", .ep = 2, .layers = 4}},
    {{.dp = 2, .pp = 2, .zero = 3, .schedule = "interleaved", .chunks = 2}},
    {{.dp = 2, .weights_away = true, .saved_away = true, .micro = 2}},
    {{.dp = 2, .pp = 2, .tp = 2, .schedule = "1f1b", .micro = 2}},
    {{.dp = 2,
      .pp = 2,
      .tp = 2,
      .zero = 2,
      .schedule = "1f1b",
      .recompute = true,
      .sequence = true,
      .micro = 2}},
    {{.pp = 2, .tp = 2, .schedule = "interleaved", .chunks = 2, .sequence = true, .cp = 2}}};

class BertLayouts : public ::testing::TestWithParam<BertCase> {};
INSTANTIATE_TEST_SUITE_P(Fixed, BertLayouts, ::testing::ValuesIn(kBertCases));

TEST_P(BertLayouts, LeaveWhatOneRankLeaves) {
  const BertCase& c = GetParam();
  const std::vector<RunRecord>& one = serial_bert(c);
  EXPECT_GT(one.back().norms.back(), bert_config_of(c).clip) << "gradients are clipped";
  EXPECT_TRUE(same_steps(
      one,
      run_layout<PairsTrainer>({.ranks = c.layout.ranks(), .virtual_time = c.layout.virtual_time},
                               bert_config_of(c), kBertSteps, bert_parts_of(c))));
}

// Three windows, of unequal numbers of masked words, after a step: of data ranks some have none.
double evaluated_bert(TrainConfig config, int ranks, const StepParts& parts) {
  double loss = 0;
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    PairsTrainer pairs(rank, config, parts);
    Trainer& trainer = pairs.trainer;
    trainer.step(pairs.data);
    std::vector<Batch> windows;
    for (int w = trainer.data_ranks().rank(); w < 3; w += trainer.data_ranks().size())
      windows.push_back(pairs.data.batch(rank.device, 5 * w, w + 1));
    const double found = trainer.evaluate(windows);
    if (rank.world.rank() == 0) loss = found;
  });
  return loss;
}

TEST(BertOfRanks, EvaluatesWhatOneRankEvaluates) {
  for (const BertCase& c : kBertCases) {
    const LayoutCase& l = c.layout;
    if (l.zero != 3 && l.tp * l.cp == 1 && l.ep == 0 && l.pp == 1) continue;
    TrainConfig config = bert_config_of(c);
    const double found = evaluated_bert(config, l.ranks(), bert_parts_of(c));
    config.pp = config.tp = config.cp = config.ep = 1;
    const double one = evaluated_bert(
        config, 1, bert({.batch = config.batch, .predictions = kPredictions}, parts_of_one(l)));
    EXPECT_NEAR(found, one, 1e-12 * one) << c;
  }
}

// Each loss is a mean over terms of its own, of all windows: these are cut at any place.
TEST(BertOfOneRank, EvaluatesTheSameHoweverSamplesAreCut) {
  const BertCase c{{.dp = 2, .micro = 1}};
  const TrainConfig config = bert_config_of(c);
  launch(launch_options({.ranks = 1}), [&](const Rank& rank) {
    PairsTrainer pairs(rank, config, bert({.batch = config.batch, .predictions = kPredictions}));
    for (int i = 0; i < 3; ++i) pairs.trainer.step(pairs.data);
    const auto cut = [&](const std::vector<std::int64_t>& counts) {
      std::vector<Batch> windows;
      std::int64_t first = 0;
      for (const std::int64_t count : counts) {
        windows.push_back(pairs.data.batch(rank.device, first, count));
        first += count;
      }
      return pairs.trainer.evaluate(windows);
    };
    const double whole = cut({12});
    for (const auto& counts : {std::vector<std::int64_t>{1, 2, 9}, {4, 4, 4}, {11, 1}})
      EXPECT_NEAR(cut(counts), whole, 1e-13 * whole) << counts.size() << " windows";
  });
}

struct BooksOfBert {
  Ledger ledger;
  std::int64_t sent = 0;
  double seconds = 0;
};
std::vector<BooksOfBert> books_of_bert(const BertCase& c, const LaunchOptions& options) {
  std::vector<BooksOfBert> all(static_cast<std::size_t>(options.ranks));
  launch(options, [&](const Rank& rank) {
    PairsTrainer pairs(rank, bert_config_of(c), bert_parts_of(c));
    for (int i = 0; i < 2; ++i) pairs.trainer.step(pairs.data);
    all[static_cast<std::size_t>(rank.world.rank())] = {
        rank.device.ledger(), rank.world.sent_by_family().wire_bytes, rank.clock.now()};
  });
  return all;
}

// A plan of a step that no machine here could take is made so.
TEST(BertOfRanks, KeepsTheSameBooksWithoutNumbers) {
  const Machine machine = find_machine("dgx-a100");
  for (const BertCase& c : kBertCases) {
    const int ranks = c.layout.ranks();
    if (c.layout.ep > 0 || ranks < 2 || c.layout.micro != 1) continue;
    const std::vector<BooksOfBert> with = books_of_bert(c, on_machine(machine, ranks));
    const std::vector<BooksOfBert> without =
        books_of_bert(c, on_machine(machine, ranks, {.meta = true}));
    for (std::size_t r = 0; r < with.size(); ++r) {
      EXPECT_GT(with[r].seconds, 0) << c;
      // A ring merges on the host, where there are numbers.
      if (c.layout.cp == 1 || c.form == ContextForm::Ulysses) {
        EXPECT_EQ(with[r].seconds, without[r].seconds) << c;
      }
      EXPECT_EQ(with[r].sent, without[r].sent) << c;
      expect_same_memory(with[r].ledger, without[r].ledger);
    }
  }
}

// A sample's weight is not that of a masked word: with another batch behind it, it is another.
TEST(BertOfOneRank, CountsTheSamplesOfTheGlobalBatch) {
  const BertCase c{{.dp = 2, .micro = 1}};
  TrainConfig config = bert_config_of(c);
  const RunRecord& one = serial_bert(c)[0];
  const RunRecord other = run_layout<PairsTrainer>(
      {.ranks = 1}, config, 1, bert({.batch = config.batch + 1, .predictions = kPredictions}))[0];
  EXPECT_FALSE(same_run(one, other, 1e4 * kSameRunF64));
}

}  // namespace
}  // namespace aisc
