// The layers around BERT's blocks: segments, picked rows, the pooler, the two heads. Hand-worked
// numbers, gradients against central differences, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>

#include "12_encoders/bert_embedding.h"
#include "12_encoders/bert_head.h"
#include "12_encoders/bert_rows.h"
#include "common/comm/launch.h"
#include "tests/nn/layer_check.h"
#include "tests/support/error_says.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

TEST(Segments, AddTheVectorOfTheTokensText) {
  TestWorld world;
  Segments layer(world.rank, 2);
  ParameterStore store(world.device, {{"segments", layer.parameters()}},
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  write_doubles(layer.parameters()[0]->value(), {10, 20, 30, 40});
  const Tensor ids = ids_tensor({0, 1, 1}, world.device).reshaped({1, 3});
  const Tensor x = from_doubles({1, 2, 3, 4, 5, 6}, {1, 3, 2}, DType::F64, world.device);
  Saved saved;
  EXPECT_TRUE(numbers_are("y", layer.forward(x.clone(), saved, {.segments = ids}),
                          {11, 22, 33, 44, 35, 46}));
  EXPECT_TRUE(numbers_are("y without segments: all are the first text",
                          layer.forward(x.clone(), saved, {}), {11, 22, 13, 24, 15, 26}));
  layer.backward(x.clone(), saved, {.segments = ids});
  EXPECT_TRUE(numbers_are("the segments' gradient: the sum over the tokens of each",
                          layer.parameters()[0]->grad(), {1, 2, 8, 10}));
  const Tensor wrong = ids_tensor({0, 2, 1}, world.device).reshaped({1, 3});
  EXPECT_TRUE(error_says([&] { layer.forward(x.clone(), saved, {.segments = wrong}); },
                         {"embedding", "id", "2"}));
}

TEST(Segments, HaveTheGradientOfTheirLoss) {
  TestWorld world;
  const Tensor ids = ids_tensor({0, 1, 1, 1, 0, 0}, world.device).reshaped({2, 3});
  Segments layer(world.rank, 5);
  check_layer_gradients(world, layer, {2, 3, 5}, {.segments = ids});
}

TEST(Tanh, IsTheHyperbolicTangent) {
  TestWorld world;
  const std::vector<double> x{-30, -1, -1e-3, 0, 1e-9, 0.5, 2, 40};
  std::vector<double> y, dx;
  for (const double v : x) {
    y.push_back(std::tanh(v));
    dx.push_back(1 - std::tanh(v) * std::tanh(v));
  }
  Tanh layer(world.rank, "tanh");
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    Saved saved;
    const Tensor in = from_doubles(x, {2, 4}, dtype, world.device);
    // A short type's result is one rounding away from that of the rounded input.
    const double tolerance = dtype == DType::F64 ? 1e-15 : dtype == DType::F32 ? 1e-6 : 1e-2;
    EXPECT_TRUE(numbers_are("tanh", layer.forward(in.share(), saved, {}), y, {}, tolerance));
    const Tensor ones = from_doubles(std::vector<double>(8, 1.0), {2, 4}, dtype, world.device);
    EXPECT_TRUE(numbers_are("tanh'", layer.backward(ones.share(), saved, {}), dx, {}, tolerance));
  }
  check_layer_gradients(world, layer, {3, 5}, {});
}

TEST(PickedRows, AreARowEachAndNothingForPlacesThatAreNotHere) {
  TestWorld world;
  const Tensor x = from_doubles(counted(8), {2, 2, 2}, DType::F64, world.device);
  const PickedRows picked(world.rank, nullptr);
  const Tensor places = ids_tensor({2, 0, 4, 2}, world.device);
  const Tensor y = picked.forward(x, places);
  EXPECT_TRUE(numbers_are("rows", y, {5, 6, 1, 2, 0, 0, 5, 6}));
  const Tensor dx({2, 2, 2}, DType::F64, world.device);
  picked.backward(dx, y, places);
  EXPECT_TRUE(numbers_are(
      "dx", dx, {1, 2, 0, 0, 10, 12, 0, 0},
      {{"a row that is picked twice gets one of its gradients", {1, 2, 0, 0, 5, 6, 0, 0}}}));
  const Tensor outside = ids_tensor({5}, world.device);
  EXPECT_TRUE(error_says([&] { picked.forward(x, outside); }, {"embedding", "id", "5"}));
}

// Each of 3 ranks has 2 of 6 tokens a sample, rows of all tokens in their order.
TEST(PickedRows, AreTheSameWhereRanksShareTheTokens) {
  launch({.ranks = 3, .device = {.poison = true}, .bind = false}, [](const Rank& rank) {
    const Tensor all = random_tensor({2, 6, 3}, DType::F64, rank.device, "x");
    const Tensor places = ids_tensor({0, 6, 3, 11, 12, 3}, rank.device);
    const PickedRows whole(rank, nullptr), shared(rank, &rank.world);
    const std::int64_t own = 4 * 3, begin = rank.world.rank() * own;
    Tensor x({2, 2, 3}, DType::F64, rank.device);
    rank.device.copy(x, all.view().flat(begin, own));
    const Tensor y = whole.forward(all, places);
    EXPECT_TRUE(same_bits(shared.forward(x, places), y));
    const Tensor dall({2, 6, 3}, DType::F64, rank.device), dx({2, 2, 3}, DType::F64, rank.device);
    whole.backward(dall, y, places);
    shared.backward(dx, y, places);
    EXPECT_TRUE(numbers_are("dx", dx, to_doubles(dall.view().flat(begin, own))));

    // The first token of each sample, where nothing is picked.
    const auto pooled = [&](Communicator* token_ranks, const Tensor& of) {
      BertRows rows(rank, 3, 1e-12, token_ranks);
      ParameterStore store(rank.device, {{"rows", rows.parameters()}},
                           {.value_dtype = DType::F64, .grad_dtype = DType::F64});
      store.initialize(1);
      Saved nothing = Saved::nothing();
      return rows.forward(of.share(), nothing, {});
    };
    EXPECT_TRUE(same_bits(pooled(&rank.world, x), pooled(nullptr, all)));
  });
}

TEST(BertRows, HaveTheGradientOfTheirLoss) {
  TestWorld world;
  BertRows rows(world.rank, 5, 1e-12);
  const Tensor both = ids_tensor({0, 3, 1, 6, 5, 3}, world.device);
  check_layer_gradients(world, rows, {2, 3, 5}, {.picked = both});
}

TEST(BertRows, ArePooledAloneWithoutWords) {
  TestWorld world;
  BertRows rows(world.rank, 3, 1e-12);
  ParameterStore store(world.device, {{"rows", rows.parameters()}},
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(7);
  const Tensor x = random_tensor({2, 4, 3}, DType::F64, world.device, "x");
  const Tensor first = ids_tensor({0, 4}, world.device),
               words = ids_tensor({0, 4, 2, 7}, world.device);
  Saved saved;
  const Tensor pooled = rows.forward(x.share(), saved, {});
  EXPECT_EQ(pooled.shape(), (Shape{2, 3}));
  EXPECT_TRUE(same_bits(rows.forward(x.share(), saved, {.picked = first}), pooled));
  const Tensor all = rows.forward(x.share(), saved, {.picked = words});
  EXPECT_EQ(all.shape(), (Shape{4, 3}));
  EXPECT_TRUE(numbers_are("the pooled rows", all.rows(0, 2), to_doubles(pooled)));
  const Tensor one = ids_tensor({0}, world.device);
  EXPECT_TRUE(error_says([&] { rows.forward(x.share(), saved, {.picked = one}); },
                         {"1 places are picked of 2 samples, expected one or more of each"}));
}

struct HeadOfTable {
  explicit HeadOfTable(TestWorld& world, Communicator* tp = nullptr)
      : table(token_table(5, 8, 3)), head(world.rank, table, 2, tp), store(bound(world)) {}
  std::vector<Parameter*> all() {
    std::vector<Parameter*> parameters = head.parameters();
    parameters.push_back(&table);
    return parameters;
  }
  ParameterStore bound(TestWorld& world) {
    return ParameterStore(world.device, {{"all", all()}},
                          {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  }
  Parameter table;
  BertHead head;
  ParameterStore store;
};

TEST(BertHead, ScoresSamplesByItsOwnWeightsAndWordsByTheTable) {
  TestWorld world;
  HeadOfTable of(world);
  EXPECT_EQ(of.head.borrows(), std::vector<Parameter*>{&of.table});
  for (Parameter* p : of.all()) write_doubles(p->value(), std::vector<double>(p->shape.count(), 0));
  const auto named = [&](const std::string& name) {
    for (Parameter* p : of.all())
      if (p->name == name) return p->value();
    return View();
  };
  write_doubles(named("next_sentence.weight"), {1, 0, 0, 0, 0, 2});
  write_doubles(named("next_sentence.bias"), {0.5, -0.5});
  write_doubles(named("wte.weight").flat(3, 3), {1, 1, 1});  // of word 1
  write_doubles(named("head.bias"), {1, 2, 3, 4, 5, 0, 0, 0});
  // One sample, (1, 2, 3), of two masked words, (4, 5, 6) and (0, 0, 1).
  const Tensor rows = from_doubles({1, 2, 3, 4, 5, 6, 0, 0, 1}, {3, 3}, DType::F64, world.device);
  const Tensor places = ids_tensor({0, 0, 0}, world.device);
  Saved saved;
  const Tensor scores = of.head.forward(rows.share(), saved, {.picked = places});
  EXPECT_TRUE(numbers_are("scores", scores,
                          {1.5, 5.5,                 // the sample's
                           1, 17, 3, 4, 5, 0, 0, 0,  // the first word's
                           1, 3, 3, 4, 5, 0, 0, 0}));
  const Tensor more = from_doubles(counted(12), {4, 3}, DType::F64, world.device);
  EXPECT_TRUE(error_says([&] { of.head.forward(more.share(), saved, {.picked = places}); },
                         {"bert: 4 rows are picked", "of each sample one and 2 of masked words"}));
  EXPECT_TRUE(error_says([&] { scores_of(scores, 2, 8); },
                         {"bert: 18 scores, expected 2 of each of 2 samples and 8 of each word"}));
  EXPECT_EQ(of.head.forward(more.share(), saved, {}).shape(), (Shape{8})) << "nothing is picked";
}

TEST(BertHead, HasTheGradientOfItsLoss) {
  TestWorld world;
  const Tensor places = ids_tensor({0, 0, 0, 0, 0, 0}, world.device);
  const Pass pass{.picked = places};
  HeadOfTable of(world);
  check_layer_gradients(world, of.head, {6, 3}, pass);
}

// Of the table, which is another layer's; at once, or where a pipeline would idle.
TEST(BertHead, HasTheTablesGradient) {
  TestWorld world;
  const Tensor places = ids_tensor({0, 0, 0, 0, 0, 0}, world.device);
  for (const bool deferred : {false, true}) {
    DeferredGrads later;
    const Pass pass{.picked = places, .deferred = deferred ? &later : nullptr};
    HeadOfTable of(world);
    for (Parameter* p : of.all())
      world.device.copy(p->value(), random_tensor(p->shape, DType::F64, world.device, p->name));
    const Tensor rows = random_tensor({6, 3}, DType::F64, world.device, "rows");
    Saved saved;
    const Tensor y = of.head.forward(rows.share(), saved, pass);
    const Tensor weights = random_tensor(y.shape(), DType::F64, world.device, "weights");
    of.head.backward(weights.clone(), saved, pass);
    EXPECT_EQ(of.table.has_grad, !deferred);
    later.run_all();
    const auto loss = [&] {
      Saved nothing = Saved::nothing();
      return dot(of.head.forward(rows.share(), nothing, pass), weights);
    };
    EXPECT_TRUE(check_gradient(loss, of.table.value(), of.table.grad()));
  }
}

}  // namespace
}  // namespace aisc
