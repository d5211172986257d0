// shard(): any model in a loop of one's own is the serial run, and the trainer's. And a step that
// must not be taken is taken by no rank.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "04_sharding/sharded_units.h"
#include "common/comm/host_values.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"
#include "tests/support/error_says.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

// 21 samples: over 2 and 4 ranks the shares differ by one. The rate is the same in each step, and
// nothing is clipped, so that a loop can do without schedule and norm.
TrainConfig config_of_one_call() {
  TrainConfig c = odd_training();
  c.min_learning_rate = c.learning_rate;
  c.warmup_steps = 0;
  c.clip = 0;
  return c;
}

// What is trained: a model, and a rank's part of a step's samples.
struct Task {
  std::function<Model(const Rank& rank, const TrainConfig& config)> model;
  std::function<MicroBatch(const Rank& rank, const BatchSampler& data, int step, const Range& part)>
      read;
  double losses_a_sample;
};

// The sum over samples of |y - x|^2 / 2.
class SquaredError final : public Loss {
 public:
  double forward(Tensor x, const Tensor& targets, Saved& saved,
                 const Pass& /*pass*/) const override {
    ops::scale(x, x, -1);
    ops::add(x, x, targets);
    const double loss = ops::sum_of_squares(x) / 2;
    saved.push(std::move(x));  // (B, O)
    return loss;
  }
  Tensor backward(Saved& saved, double factor) const override {
    Tensor dx = saved.pop();
    ops::scale(dx, dx, -factor);
    return dx;
  }
};

// Rows of a tensor of normal numbers, (21, columns), the same for any split over ranks.
Tensor drawn_rows(const Rank& rank, const std::string& name, std::int64_t columns,
                  const Range& part) {
  const std::vector<double> all =
      to_doubles(random_tensor({21, columns}, DType::F64, rank.device, name));
  return from_doubles({all.begin() + part.begin * columns, all.begin() + part.end * columns},
                      {part.count(), columns}, DType::F64, rank.device);
}

// 3 -> 7 -> 5 -> 2 columns: units of 28, 40 and 12 elements, of which most ranks have padding
// alone; the first two are one layer's.
const Task kPerceptron = {
    .model =
        [](const Rank& rank, const TrainConfig&) {
          using Gelu = Linear::Gelu;
          Model model;
          model.layers.push_back(in_sequence(
              rank, "hidden", std::make_unique<Linear>(rank, "first", 3, 7, 0.5, Gelu::Behind),
              std::make_unique<Linear>(rank, "second", 7, 5, 0.5, Gelu::Before)));
          model.layers.push_back(std::make_unique<Linear>(rank, "third", 5, 2, 0.5));
          model.loss = std::make_unique<SquaredError>();
          return model;
        },
    .read =
        [](const Rank& rank, const BatchSampler&, int step, const Range& part) {
          const std::string name = std::to_string(step);
          return MicroBatch{.batch = {.tokens = drawn_rows(rank, "x" + name, 3, part),
                                      .targets = drawn_rows(rank, "y" + name, 2, part)},
                            .pass = {}};
        },
    .losses_a_sample = 1};

const Task kGpt = {
    .model = [](const Rank& rank, const TrainConfig& c) { return make_gpt(rank, c.model); },
    .read =
        [](const Rank& rank, const BatchSampler& data, int step, const Range& part) {
          return MicroBatch{
              .batch = data.batch(rank.device, 21 * step + part.begin, part.count()),
              .pass = {.step = static_cast<std::uint64_t>(step), .first_sample = part.begin}};
        },
    .losses_a_sample = 11};

// The loop of sharded_units.h; stage 0: that of one rank that has everything.
struct OneCall {
  OneCall(const Rank& own, const TrainConfig& c, const Task& what, int stage)
      : rank(own), config(c), task(what), model(task.model(rank, config)) {
    if (stage > 0) {
      s = shard(rank, model, stage, {}, config.seed, {DType::F64, DType::F64});
    } else {
      s.store = std::make_unique<ParameterStore>(
          rank.device, make_units(model),
          ParameterStore::Options{.value_dtype = DType::F64, .grad_dtype = DType::F64});
      s.store->initialize(config.seed);
    }
    optimizer_ = std::make_unique<AdamW>(
        s.units ? s.units->slices() : slices_of(s.store->parameters()), AdamW::Options{});
  }

  struct Report {
    double loss;
  };
  Report step(const BatchSampler& data) {
    const auto now = static_cast<int>(optimizer_->steps());
    const Range part = share_of(config.batch, rank.world.rank(), rank.world.size());
    const MicroBatch micro = task.read(rank, data, now, part);
    const double losses = static_cast<double>(config.batch) * task.losses_a_sample;
    std::vector<LayerHook*> hooks;
    if (s.units) hooks.push_back(s.units.get());
    s.store->clear_grads();
    if (s.units) s.units->begin();
    const double loss = forward_backward(model, micro.batch.tokens, micro.batch.targets, micro.pass,
                                         1 / losses, hooks) /
                        losses;
    if (s.units) s.units->finish();
    optimizer_->step({.learning_rate = config.learning_rate});
    if (s.units) s.units->updated();
    return {.loss = sum_of_all(rank.world, loss)};
  }
  const Optimizer& optimizer() const { return *optimizer_; }

  Rank rank;
  TrainConfig config;
  Task task;
  Model model;
  Sharded s;
  std::unique_ptr<Optimizer> optimizer_;
};

class OneCallSharding : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OneCallSharding, ::testing::ValuesIn(conformance::rank_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(OneCallSharding, OfAModelOfLinearLayersIsTheSerialRun) {
  const auto serial = run_layout<OneCall>({}, config_of_one_call(), 4, kPerceptron, 0);
  EXPECT_LT(serial.back().losses[0], 100);
  EXPECT_NE(serial.front().weights, serial.back().weights);
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    EXPECT_TRUE(same_steps(serial, run_layout<OneCall>({.ranks = GetParam()}, config_of_one_call(),
                                                       4, kPerceptron, stage)));
  }
}

TEST_P(OneCallSharding, OfAGptIsTheTrainersRun) {
  const auto serial = run_layout({}, config_of_one_call(), 3);
  EXPECT_TRUE(same_steps(serial, run_layout<OneCall>({}, config_of_one_call(), 3, kGpt, 0)));
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    const RankLayout layout{.ranks = GetParam()};
    const auto one_call = run_layout<OneCall>(layout, config_of_one_call(), 3, kGpt, stage);
    EXPECT_TRUE(same_steps(serial, one_call));
    EXPECT_TRUE(same_steps(run_layout(layout, config_of_one_call(), 3, sharded({.stage = stage})),
                           one_call, 0))
        << "to the last bit";
  }
}

// Weights are drawn shard by shard: at no moment has a rank more than it has when all is made.
TEST_P(OneCallSharding, MakesTheModelShardByShard) {
  launch(launch_options({.ranks = GetParam()}), [](const Rank& rank) {
    const Model model = make_gpt(rank, config_of_one_call().model);
    const Sharded s = shard(rank, model, 3, {}, 1, {DType::F64, DType::F64});
    const std::int64_t a_shard = 8 * s.store->layout().count() / rank.world.size();
    const Ledger ledger = rank.device.ledger();
    EXPECT_EQ(ledger[Purpose::Parameters].peak_bytes, a_shard);
    EXPECT_EQ(ledger[Purpose::Gradients].peak_bytes, a_shard);
    EXPECT_EQ(ledger.total.peak_bytes, 2 * a_shard) << "nor under another name";
  });
}

// A trainer whose second step meets `value` once in a gradient, in the shard of the last rank
// alone, and where there are several micro-batches in the first one's: that no rank may take this
// step, the others know by the norm of all shards.
struct Interrupted {
  Interrupted(const Rank& own, const TrainConfig& config, int stage, double value)
      : rank(own), value_(value), trainer(rank, config, parts_of(stage)) {}

  StepReport step(const BatchSampler& data) {
    if (trainer.steps_taken() == 1) {
      const std::vector<double> before = numbers();
      spoils_ = true;
      EXPECT_TRUE(error_says([&] { trainer.step(data); },
                             {"step 2", "norm of the gradients", value_ > 0 ? "inf" : "NaN"}));
      spoils_ = false;
      EXPECT_EQ(numbers(), before) << "rank " << rank.world.rank() << ", weights and moments";
      EXPECT_EQ(trainer.steps_taken(), 1);
    }
    return trainer.step(data);
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }

 private:
  StepParts parts_of(int stage) {
    StepParts parts = sharded({.stage = stage});
    parts.loop = [this](const Rank& own, const Model& model, std::int64_t count,
                        const ReadMicroBatch& read, double factor, Hooks hooks) {
      std::int64_t micro_batches = 0;  // that are over
      const ReadMicroBatch read_next = [&](std::int64_t m) {
        if (micro_batches++ == 1) spoil(hooks);
        return read(m);
      };
      const double loss = one_after_another(own, model, count, read_next, factor, hooks);
      if (count == 1) spoil(hooks);
      return loss;
    };
    return parts;
  }
  // The last layers' sums are over: only the first unit's is still under way.
  void spoil(Hooks hooks) const {
    if (!spoils_ || rank.world.rank() + 1 < rank.world.size()) return;
    const OptimizerSlice last = dynamic_cast<ShardedUnits&>(*hooks[0]).slices().back();
    *const_cast<double*>(last.gradient.data<double>()) = value_;
  }
  // What the optimizer has of its own, and whole weights where there are any.
  std::vector<double> numbers() const {
    std::vector<double> all;
    const auto add = [&](const ConstView& view) {
      const std::vector<double> values = to_doubles(view);
      all.insert(all.end(), values.begin(), values.end());
    };
    for (const OptimizerSlice& slice : trainer.optimizer().slices()) add(slice.weight);
    for (const Optimizer::State& state : trainer.optimizer().state()) add(state.value);
    const ShardedUnits& units = dynamic_cast<const ShardedUnits&>(trainer.reducer());
    if (!units.joins_forward()) add(trainer.parameters().values());
    return all;
  }

  Rank rank;
  double value_;
  bool spoils_ = false;
  Trainer trainer;
};

TEST_P(OneCallSharding, AStepThatIsNotFiniteIsTakenByNoRank) {
  TrainConfig config = config_of_one_call();
  config.clip = 0.05;
  config.micro_batches = 3;
  const RankLayout layout{.ranks = GetParam()};
  for (const int stage : {1, 2, 3})
    for (const double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      SCOPED_TRACE("stage " + std::to_string(stage));
      EXPECT_TRUE(same_steps(run_layout(layout, config, 3, sharded({.stage = stage})),
                             run_layout<Interrupted>(layout, config, 3, stage, value), 0))
          << "the run goes on as if nothing had been";
    }
}

TEST(OneCallShardingErrors, OfAStageThatIsNone) {
  for (const int stage : {0, 4})
    EXPECT_TRUE(error_says(
        [&] {
          launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
            const Model model = make_gpt(rank, config_of_one_call().model);
            shard(rank, model, stage);
          });
        },
        {"sharding: stage " + std::to_string(stage), "expected 1, 2 or 3"}));
}

}  // namespace
}  // namespace aisc
