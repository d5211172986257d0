// The loop over the layers and those who watch it: units, hooks, what is final when.
#include "common/nn/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/nn/linear.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"

namespace aisc {
namespace {

// Writes down what it is told.
class Scribe : public LayerHook {
 public:
  Scribe(std::string name, std::vector<std::string>& lines)
      : name_(std::move(name)), lines_(lines) {}

  void before_forward(std::size_t layer, const Pass& pass) override { add("f(", layer, &pass); }
  void after_forward(std::size_t layer, const Pass& pass, Saved&) override {
    add("f)", layer, &pass);
  }
  void before_backward(std::size_t layer, const Pass& pass, Saved&) override {
    add("b(", layer, &pass);
  }
  void after_backward(std::size_t layer, const Pass& pass) override { add("b)", layer, &pass); }
  void complete(std::size_t layer) override { add("c", layer, nullptr); }

 private:
  void add(const std::string& what, std::size_t layer, const Pass* pass) {
    lines_.push_back(
        name_ + what + std::to_string(layer) +
        (pass && pass->micro_batch > 0 ? "." + std::to_string(pass->micro_batch) : ""));
  }

  std::string name_;
  std::vector<std::string>& lines_;
};

std::vector<std::string> only(const std::vector<std::string>& lines, const std::string& what) {
  std::vector<std::string> some;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(some),
               [&](const std::string& line) { return line.find(what) != std::string::npos; });
  return some;
}

// y = x weight^T of a layer elsewhere in the model: the layer runs twice.
class Again final : public Layer {
 public:
  Again(const Rank& rank, Layer& other) : Layer(rank, "again"), other_(other) {}
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    return other_.forward(std::move(x), saved, pass);
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    return other_.backward(std::move(dy), saved, pass);
  }
  std::vector<Parameter*> borrows() override { return other_.parameters(); }

 private:
  Layer& other_;
};

// Half the sum of the squares: its gradient is what it is given.
class HalfSquares final : public Loss {
 public:
  double forward(Tensor x, const Tensor&, Saved& saved, const Pass& /*pass*/) const override {
    const double sum = dot(x, x) / 2;
    saved.push(std::move(x));
    return sum;
  }
  Tensor backward(Saved& saved, double factor) const override {
    Tensor x = saved.pop();
    ops::scale(x, x, factor);
    return x;
  }
};

Model linears(const Rank& rank, int count) {
  Model model;
  for (int i = 0; i < count; ++i)
    model.layers.push_back(std::make_unique<Linear>(rank, "linear" + std::to_string(i), 3, 3));
  model.loss = std::make_unique<HalfSquares>();
  return model;
}

ParameterStore store_of(TestWorld& world, const Model& model) {
  ParameterStore store(world.device, make_units(model),
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(1);
  return store;
}

TEST(Hooks, NestInOrderAndUnwindInReverse) {
  TestWorld world;
  const Model model = linears(world.rank, 2);
  const ParameterStore store = store_of(world, model);
  std::vector<std::string> lines;
  Scribe a("a", lines), b("b", lines);
  LayerHook* const hooks[] = {&a, &b};
  const Tensor x = random_tensor({2, 3, 3}, DType::F64, world.device, "x");
  forward_backward(model, x, x, {}, 1.0, hooks);
  const std::vector<std::string> expected{"af(0", "bf(0", "bf)0", "af)0", "af(1", "bf(1",
                                          "bf)1", "af)1",                                 //
                                          "ab(1", "bb(1", "bb)1", "ab)1", "ac1",  "bc1",  //
                                          "ab(0", "bb(0", "bb)0", "ab)0", "ac0",  "bc0"};
  EXPECT_EQ(lines, expected);
}

TEST(Hooks, AreToldOnceThatGradientsAreFinalAfterTheLastMicroBatch) {
  TestWorld world;
  const Model model = linears(world.rank, 2);
  const ParameterStore store = store_of(world, model);
  std::vector<std::string> lines;
  Scribe scribe("", lines);
  LayerHook* const hooks[] = {&scribe};
  const Tensor x = random_tensor({2, 3, 3}, DType::F64, world.device, "x");
  for (int m = 0; m < 3; ++m)
    forward_backward(model, x, x, {.micro_batch = m, .last_micro_batch = m == 2}, 1.0, hooks);
  EXPECT_EQ(only(lines, "c"), (std::vector<std::string>{"c1", "c0"}));
  EXPECT_EQ((std::vector<std::string>(lines.end() - 4, lines.end())),
            (std::vector<std::string>{"c1", "b(0.2", "b)0.2", "c0"}));
}

// When complete() comes the gradients are those at the end of the step: recorded then, compared
// later. Runs with weight gradients at once and deferred, of which some are run before others.
class Watcher : public LayerHook {
 public:
  Watcher(const Model& model, const ParameterStore& store)
      : store_(store), units_(layer_units(model, store.units())), seen_(store.units().size()) {}

  void complete(std::size_t layer) override {
    for (const std::size_t unit : units_[layer].completes) {
      EXPECT_TRUE(seen_[unit].empty()) << "unit " << unit << " was complete before";
      seen_[unit] = to_doubles(store_.grads(unit));
    }
  }
  void expect_final() const {
    for (std::size_t u = 0; u < seen_.size(); ++u)
      EXPECT_EQ(seen_[u], to_doubles(store_.grads(u))) << store_.units()[u].name;
  }

 private:
  const ParameterStore& store_;
  std::vector<LayerUnits> units_;
  std::vector<std::vector<double>> seen_;
};

TEST(Hooks, FindFinalGradientsWithTiedTablesMicroBatchesAndDeferredOnes) {
  for (const bool defer : {false, true})
    for (const int micro_batches : {1, 3}) {
      TestWorld world;
      TestGpt gpt(world, odd_config(DType::F64, 0.2));
      Watcher watcher(gpt.model, gpt.store);
      LayerHook* const hooks[] = {&watcher};
      DeferredGrads deferred;
      for (int m = 0; m < micro_batches; ++m) {
        const Tensor tokens = random_tokens(world.device, 2, 11, 13, static_cast<std::uint64_t>(m));
        forward_backward(gpt.model, tokens, tokens,
                         {.micro_batch = m,
                          .last_micro_batch = m + 1 == micro_batches,
                          .deferred = defer ? &deferred : nullptr},
                         0.5, hooks);
      }
      deferred.run_all();
      watcher.expect_final();
    }
}

TEST(Hooks, FindFinalGradientsOfALayerThatRunsTwice) {
  TestWorld world;
  Model model = linears(world.rank, 3);
  Layer& twice = *model.layers[1];
  model.layers.push_back(std::make_unique<Again>(world.rank, twice));
  const ParameterStore store = store_of(world, model);
  const std::vector<LayerUnits> units = layer_units(model, store.units());
  EXPECT_EQ(units[3].reads, std::vector<std::size_t>{1});
  EXPECT_TRUE(units[3].completes.empty()) << "its other run comes later in the backward pass";
  EXPECT_EQ(units[1].completes, std::vector<std::size_t>{1});
  Watcher watcher(model, store);
  LayerHook* const hooks[] = {&watcher};
  const Tensor x = random_tensor({2, 3, 3}, DType::F64, world.device, "x");
  forward_backward(model, x, x, {}, 1.0, hooks);
  watcher.expect_final();
}

// What sharding frees and gathers: the head reads the table, which is complete at the very end.
TEST(Units, AreThoseOfTheLayersAndTheTableCompletesLast) {
  TestWorld world;
  const Model model = make_gpt(world.rank, odd_config());
  const std::vector<Unit> units = make_units(model);
  std::vector<std::string> names;
  for (const Unit& unit : units) names.push_back(unit.name);
  EXPECT_EQ(names, (std::vector<std::string>{"wte", "wpe", "blocks.0", "blocks.1", "norm"}));
  const std::vector<LayerUnits> of = layer_units(model, units);
  ASSERT_EQ(of.size(), 7u);  // embedding, positions, dropout, two blocks, norm, head
  EXPECT_EQ(of[6].reads, std::vector<std::size_t>{0});
  EXPECT_TRUE(of[6].completes.empty());
  EXPECT_EQ(of[0].completes, std::vector<std::size_t>{0});
  EXPECT_TRUE(of[2].reads.empty());
}

TEST(Units, OfOneGroupOfRanksAreAStores) {
  TestWorld world;
  const Model model = linears(world.rank, 2);
  model.layers[1]->parameters()[0]->sync = Sync::ExpertData;
  EXPECT_TRUE(error_says([&] { ParameterStore(world.device, model.layers[1]->units(), {}); },
                         {"linear1.bias", "linear1.weight", "one group of ranks a store"}));
  EXPECT_EQ(make_units(model).size(), 2u);
  EXPECT_EQ(make_units(model)[1].parameters.size(), 1u);
  ASSERT_EQ(make_units(model, Sync::ExpertData).size(), 1u);
  EXPECT_EQ(make_units(model, Sync::ExpertData)[0].parameters[0]->name, "linear1.weight");
}

// Stages one after another are the model: the last has a table of its own.
TEST(Gpt, InStagesIsTheWholeModel) {
  TestWorld world;
  const GptConfig config = odd_config(DType::F64, 0.2);
  TestGpt whole(world, config);
  const Tensor tokens = random_tokens(world.device, 2, 11, 13, 4);
  const double loss = forward_backward(whole.model, tokens, tokens, {}, 0.5);

  Model first = make_gpt(world.rank, config, gpt2_parts(), {0, 1});
  Model last = make_gpt(world.rank, config, gpt2_parts(), {1, 2});
  EXPECT_FALSE(first.loss);
  std::map<std::string, const Parameter*> known;
  for (const Parameter* p : whole.store.parameters()) known[p->name] = p;
  ParameterStore a = store_of(world, first), b = store_of(world, last);
  for (const ParameterStore* store : {&a, &b})
    for (const Parameter* p : store->parameters())
      world.device.copy(p->value(), known.at(p->name)->value());
  std::vector<Saved> saved_a(first.layers.size()), saved_b(last.layers.size()), of_loss(1);
  Tensor x = forward_layers(first, tokens.share(), saved_a, {});
  x = forward_layers(last, std::move(x), saved_b, {});
  EXPECT_EQ(last.loss->forward(std::move(x), tokens, of_loss[0], {}), loss);
  Tensor dx = backward_layers(last, last.loss->backward(of_loss[0], 0.5), saved_b, {});
  backward_layers(first, std::move(dx), saved_a, {});
  for (const ParameterStore* store : {&a, &b})
    for (const Parameter* p : store->parameters())
      if (p->name != "wte.weight") {
        EXPECT_TRUE(same_bits(p->grad(), known.at(p->name)->grad())) << p->name;
      }
  ops::add(a.parameters()[0]->grad(), a.parameters()[0]->grad(), b.parameters().back()->grad());
  const std::vector<double> sum = to_doubles(a.parameters()[0]->grad());
  const std::vector<double> expected = to_doubles(known.at("wte.weight")->grad());
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], expected[i], 1e-13) << i;
  const BlockRange beyond{1, 3};
  EXPECT_TRUE(error_says([&] { make_gpt(world.rank, config, gpt2_parts(), beyond); },
                         {"blocks 1 to 3 of 2"}));
}

// Blocks 0 and 2 of 3 on one rank, block 1 on another: layers of two stages in one model.
TEST(GptStages, OfOneRankAreRangesOfItsLayers) {
  TestWorld world;
  GptConfig config = odd_config(DType::F64, 0.2);
  config.layers = 3;
  TestGpt whole(world, config);
  const Tensor tokens = random_tokens(world.device, 2, 11, 13, 4);
  const double loss = forward_backward(whole.model, tokens, tokens, {}, 0.5);

  const std::vector<BlockRange> outer{{0, 1}, {2, 3}}, inner{{1, 2}};
  Model a = make_gpt(world.rank, config, gpt2_parts(), outer);
  Model b = make_gpt(world.rank, config, gpt2_parts(), inner);
  ASSERT_EQ(a.stages.size(), 2u);
  EXPECT_EQ(a.stages[0].begin, 0u);
  EXPECT_EQ(a.stages[0].end, 4u) << "table, positions, dropout and a block";
  EXPECT_EQ(a.stages[1].end, 7u) << "a block, the norm and the head";
  EXPECT_TRUE(a.loss);
  EXPECT_FALSE(b.loss);
  std::map<std::string, const Parameter*> known;
  for (const Parameter* p : whole.store.parameters()) known[p->name] = p;
  ParameterStore of_a = store_of(world, a), of_b = store_of(world, b);
  for (const ParameterStore* store : {&of_a, &of_b})
    for (const Parameter* p : store->parameters()) {
      EXPECT_EQ(p->tied, Tied::No) << p->name;
      world.device.copy(p->value(), known.at(p->name)->value());
    }
  struct Seen final : LayerHook {
    std::vector<std::size_t> layers;
    void before_forward(std::size_t layer, const Pass&) override { layers.push_back(layer); }
    void after_backward(std::size_t layer, const Pass&) override { layers.push_back(layer); }
  } seen;
  LayerHook* const hooks[] = {&seen};
  std::vector<Saved> saved_0(4), saved_1(1), saved_2(3), of_loss(1);
  Tensor x = forward_layers(a, a.stages[0], tokens.share(), saved_0, {}, hooks);
  x = forward_layers(b, std::move(x), saved_1, {});
  x = forward_layers(a, a.stages[1], std::move(x), saved_2, {}, hooks);
  EXPECT_EQ(a.loss->forward(std::move(x), tokens, of_loss[0], {}), loss);
  Tensor dx =
      backward_layers(a, a.stages[1], a.loss->backward(of_loss[0], 0.5), saved_2, {}, hooks);
  dx = backward_layers(b, std::move(dx), saved_1, {});
  backward_layers(a, a.stages[0], std::move(dx), saved_0, {}, hooks);
  EXPECT_EQ(seen.layers, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 0}));
  for (const ParameterStore* store : {&of_a, &of_b})
    for (const Parameter* p : store->parameters())
      EXPECT_TRUE(same_bits(p->grad(), known.at(p->name)->grad())) << p->name;
}

TEST(GptStages, SayWhichTableIsTied) {
  TestWorld world;
  const GptConfig config = odd_config();
  const auto table_of = [&](const BlockRange& blocks) {
    const Model model = make_gpt(world.rank, config, gpt2_parts(), blocks);
    for (const auto& layer : model.layers)
      for (const Parameter* p : layer->parameters())
        if (p->name == "wte.weight") return p->tied;
    return Tied::No;
  };
  EXPECT_EQ(table_of({0, 1}), Tied::First);
  EXPECT_EQ(table_of({1, 2}), Tied::Last);
  EXPECT_EQ(table_of({0, 2}), Tied::No);
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const auto& layer : model.layers) names.push_back(layer->name());
  return names;
}

// As stages of several ranks, and the first and the last on one, which share the table.
TEST(GptStages, MayBeTheEmbeddingAloneOrTheHeadAlone) {
  TestWorld world;
  const GptConfig config = odd_config();
  const auto make = [&](const std::vector<BlockRange>& stages) {
    return make_gpt(world.rank, config, gpt2_parts(), stages);
  };
  using Names = std::vector<std::string>;
  const BlockRange embedding{0, 0}, head{2, 2}, first{.begin = 0, .end = 1, .embedding = false},
      last{.begin = 1, .end = 2, .head = false};
  const Model a = make({embedding}), b = make({first}), c = make({last}), d = make({head});
  EXPECT_EQ(names_of(a), (Names{"wte", "wpe", "dropout"}));
  EXPECT_EQ(names_of(b), Names{"blocks.0"});
  EXPECT_EQ(names_of(c), Names{"blocks.1"});
  EXPECT_EQ(names_of(d), (Names{"norm", "head"}));
  EXPECT_FALSE(a.loss || b.loss || c.loss);
  EXPECT_TRUE(d.loss);
  EXPECT_EQ(a.layers[0]->parameters().at(0)->tied, Tied::First);
  EXPECT_EQ(d.layers[1]->parameters().at(0)->tied, Tied::Last);

  const Model outer = make({embedding, head}), inner = make({first, last});
  EXPECT_EQ(names_of(outer), (Names{"wte", "wpe", "dropout", "norm", "head"}));
  ASSERT_EQ(outer.stages.size(), 2u);
  EXPECT_EQ(outer.stages[0].end, 3u);
  EXPECT_EQ(outer.layers[0]->parameters().at(0)->tied, Tied::No);
  EXPECT_TRUE(outer.layers[4]->parameters().empty()) << "the table is the embedding's";
  EXPECT_EQ(names_of(inner), (Names{"blocks.0", "blocks.1"}));
}

TEST(GptStages, HaveToFollowOneAnother) {
  TestWorld world;
  const GptConfig config = odd_config();
  const auto make = [&](const std::vector<BlockRange>& stages) {
    return [&world, &config, stages] { make_gpt(world.rank, config, gpt2_parts(), stages); };
  };
  EXPECT_TRUE(error_says(make({}), {"no stages"}));
  EXPECT_TRUE(
      error_says(make({{0, 2}, {1, 2}}), {"blocks 1 to 2 of 2, behind a stage that ends at 2"}));
  EXPECT_TRUE(error_says(make({{0, 2}, {2, 2}}), {"blocks 2 to 2 of 2, behind"}));
  EXPECT_TRUE(
      error_says(make({{0, 0}, {0, 2}}), {"blocks 0 to 2 of 2, behind a stage that ends at 0"}));
  EXPECT_TRUE(
      error_says(make({{0, 1}, {0, 2}}), {"blocks 0 to 2 of 2, behind a stage that ends at 1"}));
}

}  // namespace
}  // namespace aisc
