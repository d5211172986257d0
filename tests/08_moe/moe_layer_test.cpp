// The layer of experts: what it computes, by loops over numbers; its gradients, by differences; and
// the same on every mesh.
#include "08_moe/moe_layer.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/model/emulated_device.h"
#include "common/nn/linear.h"
#include "tests/08_moe/moe_case.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"

namespace aisc {
namespace {

using moe::MoeCase;
using moe::MoeResult;

const char* const kRouters[] = {"switch", "top2", "noisy-top2", "expert-choice", "bias"};

// One layer on one rank, with weights.
struct OneLayer {
  explicit OneLayer(const MoeCase& wanted) : c(wanted), world(make_self_communicator()) {
    model.layers.push_back(std::make_unique<MoeLayer>(rank(), "moe", moe::layer_options(c)));
    for (const Sync sync : {Sync::Data, Sync::ExpertData}) {
      stores.push_back(std::make_unique<ParameterStore>(
          device, make_units(model, sync),
          ParameterStore::Options{.value_dtype = c.dtype, .grad_dtype = c.dtype}));
      moe::draw_weights(*stores.back());
    }
    x = random_tensor({c.samples, c.tokens, c.width}, c.dtype, device, "x");
  }
  Rank rank() { return {*world, device, clock, trace}; }
  Layer& layer() { return *model.layers[0]; }
  View value(const std::string& name) const {
    for (const auto& store : stores)
      for (const Parameter* p : store->parameters())
        if (p->name == "moe." + name) return p->value();
    fail("no " + name);
  }

  MoeCase c;
  std::unique_ptr<Communicator> world;
  CpuDevice device;
  Clock clock = Clock::wall();
  Trace trace{clock};
  Model model;
  std::vector<std::unique_ptr<ParameterStore>> stores;
  Tensor x;
};

// One expert's answer to a row, in doubles.
std::vector<double> answer(OneLayer& one, std::int64_t e, const double* x) {
  const std::int64_t C = one.c.width, H = 4 * C;
  const double *w1 = one.value("experts.fc.weight").data<double>() + e * H * C,
               *b1 = one.value("experts.fc.bias").data<double>() + e * H,
               *w2 = one.value("experts.project.weight").data<double>() + e * C * H,
               *b2 = one.value("experts.project.bias").data<double>() + e * C;
  std::vector<double> y(b2, b2 + C);
  for (std::int64_t h = 0; h < H; ++h) {
    const double z = std::inner_product(x, x + C, w1 + h * C, b1[h]);
    const double gelu =
        0.5 * z * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (z + 0.044715 * z * z * z)));
    for (std::int64_t i = 0; i < C; ++i) y[index(i)] += w2[i * H + h] * gelu;
  }
  return y;
}

// Token by token in the order of the text: the best expert that has room, times its probability.
TEST(MoeLayerGiven, SwitchIsAsItsLoopsSay) {
  OneLayer one({.experts = {.count = 3, .capacity = 1.0}, .samples = 2, .tokens = 10, .width = 4});
  Saved saved;
  const std::vector<double> y = to_doubles(one.layer().forward(one.x.share(), saved, {}));
  const double *x = one.x.data<double>(), *w = one.value("router.weight").data<double>();
  int dropped = 0;
  for (std::int64_t b = 0; b < 2; ++b) {
    std::vector<int> taken(3);
    for (std::int64_t t = 0; t < 10; ++t) {
      const double* token = x + (b * 10 + t) * 4;
      std::vector<double> p(3);
      for (std::size_t e = 0; e < 3; ++e)
        p[e] = std::exp(std::inner_product(token, token + 4, w + 4 * e, 0.0));
      const double sum = p[0] + p[1] + p[2];
      const auto best = std::max_element(p.begin(), p.end()) - p.begin();
      const bool fits = taken[index(best)]++ < 4;  // ceil(10 / 3)
      dropped += !fits;
      const std::vector<double> expected = answer(one, best, token);
      for (std::int64_t i = 0; i < 4; ++i)
        EXPECT_NEAR(y[index((b * 10 + t) * 4 + i)],
                    fits ? p[index(best)] / sum * expected[index(i)] : 0, 1e-12);
    }
  }
  EXPECT_GT(dropped, 0);
}

// Of x and of every weight; the noise, too, has a gradient that its size learns by.
TEST(MoeLayerGiven, GradientsAreSlopes) {
  for (const char* router : kRouters) {
    SCOPED_TRACE(router);
    OneLayer one({.experts = {.count = 4, .router = router, .capacity = 1.0, .z_loss = 0.05},
                  .samples = 2,
                  .tokens = 6,
                  .width = 4});
    const Tensor weights = random_tensor(one.x.shape(), DType::F64, one.device, "weights");
    const auto loss = [&] {
      ExtraLoss extra{.factor = 0.7};
      Saved nothing = Saved::nothing();
      const Tensor y = one.layer().forward(one.x.share(), nothing, {.step = 3, .extra = &extra});
      return dot(y, weights) + extra.factor * extra.sum;
    };
    ExtraLoss extra{.factor = 0.7};
    const Pass pass{.step = 3, .extra = &extra};
    Saved saved;
    one.layer().forward(one.x.share(), saved, pass);
    const Tensor dx = one.layer().backward(weights.clone(), saved, pass);
    EXPECT_TRUE(check_gradient(loss, one.x, dx));
    for (auto& store : one.stores) {
      store->complete_grads();
      for (Parameter* p : store->parameters()) {
        if (p->name == "moe.router.bias") continue;  // its gradient is a load
        EXPECT_TRUE(check_gradient(loss, p->value(), p->grad(), {.samples = 24})) << p->name;
      }
    }
  }
}

TEST(MoeLayerGiven, IsTheSameOnEveryMesh) {
  for (const char* router : kRouters) {
    MoeCase c{.experts = {.count = 8, .router = router, .capacity = 1.1, .z_loss = 0.05},
              .samples = 8,
              .tokens = 12};
    const MoeResult one = moe::run_moe(c);
    for (const MeshShape& mesh :
         {MeshShape{.dp = 2, .ep = 2}, MeshShape{.dp = 4, .ep = 2}, MeshShape{.dp = 4, .ep = 4},
          MeshShape{.dp = 2, .tp = 2, .ep = 2}, MeshShape{.cp = 2}, MeshShape{.tp = 4},
          MeshShape{.dp = 2, .cp = 2, .tp = 2, .ep = 2}})
      for (const bool divided : {false, true}) {
        if (divided && mesh.tp == 1) continue;
        c.mesh = mesh;
        c.divided = divided;
        moe::expect_same(one, moe::run_moe(c), c);
      }
  }
}

TEST(MoeLayerGiven, IsTheSameInTwoHops) {
  for (MoeCase c : {MoeCase{.mesh = {.dp = 4, .ep = 4}, .per_node = 2},
                    MoeCase{.mesh = {.dp = 6, .ep = 6}, .per_node = 2, .experts = {.count = 12}},
                    MoeCase{.mesh = {.dp = 6, .ep = 6}, .per_node = 3, .experts = {.count = 6}},
                    MoeCase{.mesh = {.dp = 2, .tp = 4, .ep = 2},
                    .divided = true,
                    .per_node = 4,
                    .experts = {.count = 16}}}) {
    c.samples = 6;
    c.experts.router = "top2";
    moe::expect_same(moe::run_moe(c.on_one_rank()), moe::run_moe(c), c);
  }
}

// Three samples over two ranks, seven tokens over two context ranks, ten rows over four tensor
// ranks: nothing divides. And four tokens on four ranks: some experts get none.
TEST(MoeLayerGiven, SizesNeedNotDivide) {
  for (MoeCase c :
       {MoeCase{.mesh = {.dp = 2, .cp = 2, .tp = 2, .ep = 2}, .samples = 3, .tokens = 7},
        MoeCase{.mesh = {.dp = 2, .tp = 4}, .samples = 2, .tokens = 5},
        MoeCase{.mesh = {.dp = 4, .ep = 4}, .samples = 4, .tokens = 1},
        MoeCase{.mesh = {.tp = 4}, .samples = 1, .tokens = 2}})
    for (const char* router : {"switch", "top2"}) {
      c.experts.router = router;
      moe::expect_same(moe::run_moe(c.on_one_rank()), moe::run_moe(c), c);
    }
}

// The experts that the tokens of x choose, by loops.
std::vector<std::int64_t> best_experts(const double* x, const double* w, std::int64_t tokens,
                                       std::int64_t width, std::int64_t experts) {
  std::vector<std::int64_t> best;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<double> logits;
    for (std::int64_t e = 0; e < experts; ++e)
      logits.push_back(std::inner_product(x + t * width, x + (t + 1) * width, w + e * width, 0.0));
    best.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  return best;
}

// A rank sends rows once, whether or not its tensor ranks have them, too. Four ranks with an expert
// each have 12 tokens each: rank 0 sends those of other experts, and to other ranks what it was
// asked by them; backward likewise, and without the counts.
TEST(MoeLayerGiven, EveryTokenTravelsOnce) {
  MoeCase c{.mesh = {.dp = 2, .tp = 2, .ep = 2}, .experts = {.count = 4, .capacity = 0}};
  const OneLayer one(c.on_one_rank());
  const std::vector<std::int64_t> best =
      best_experts(one.x.data<double>(), one.value("router.weight").data<double>(), 48, c.width, 4);
  std::int64_t rows = 0;
  for (std::int64_t t = 0; t < 48; ++t) rows += (t < 12) != (best[index(t)] == 0);
  for (const bool divided : {false, true}) {
    c.divided = divided;
    const MoeResult found = moe::run_moe(c);
    EXPECT_EQ(found.sent_forward, rows * c.width * 8 + 3 * 8) << "three counts for other ranks";
    EXPECT_EQ(found.sent - found.sent_forward, rows * c.width * 8);
    EXPECT_EQ(found.a2a_forward, 2);
    EXPECT_EQ(found.a2a, 4);
  }
}

// Without a limit, and while text is generated, nothing is dropped.
TEST(MoeLayerGiven, DropsOnlyInTraining) {
  OneLayer tight({.experts = {.count = 4, .capacity = 0.3}});
  OneLayer free({.experts = {.count = 4, .capacity = 0}});
  Saved nothing = Saved::nothing();
  const auto run = [&](OneLayer& one, const Pass& pass) {
    return to_doubles(one.layer().forward(one.x.share(), nothing, pass));
  };
  EXPECT_NE(run(tight, {}), run(free, {}));
  EXPECT_EQ(run(tight, {.training = false}), run(free, {}));
}

// Seconds that rank 0 waits for answers, forward, and that the shared expert computes.
struct Waited {
  double back = 0, shared = 0, there_in_backward = 0, shared_in_backward = 0;
};
Waited wait_for_answers(bool with_shared) {
  static const Machine machine = find_machine("dgx-a100");
  const MoeCase c{.mesh = {.dp = 2, .ep = 2},
                  .experts = {.count = 2},
                  .samples = 32,
                  .tokens = 8192,
                  .width = 128,
                  .dtype = DType::BF16};
  Waited waited;
  LaunchOptions options = on_machine(machine, 2, {.meta = true});
  options.record_trace = true;
  launch(options, [&](const Rank& rank) {
    Mesh mesh(rank.world, c.mesh);
    std::unique_ptr<Layer> shared =
        with_shared ? std::make_unique<Linear>(rank, "shared", c.width, c.width) : nullptr;
    Model model;
    model.layers.push_back(std::make_unique<MoeLayer>(rank, "moe", moe::layer_options(c),
                                                      expert_ranks(mesh.experts()), Samples(),
                                                      std::move(shared)));
    ParameterStore data(rank.device, make_units(model, Sync::Data), {.value_dtype = c.dtype}),
        experts(rank.device, make_units(model, Sync::ExpertData), {.value_dtype = c.dtype});
    Saved saved;
    const Shape shape{c.samples / 2, c.tokens, c.width};
    model.layers[0]->forward(Tensor(shape, c.dtype, rank.device), saved, {});
    const std::size_t forward = rank.trace.events().size();
    model.layers[0]->backward(Tensor(shape, c.dtype, rank.device), saved, {});
    if (rank.world.rank() != 0) return;
    const std::vector<TraceEvent> events = rank.trace.events();
    for (std::size_t i = 0; i < events.size(); ++i) {
      const TraceEvent& e = events[i];
      const double seconds = e.end_seconds - e.begin_seconds;
      if (e.name == "moe.back" && i < forward) waited.back += seconds;
      if (e.name == "moe.there" && i >= forward) waited.there_in_backward += seconds;
      if (e.name == "shared.weight" && e.part == "product")
        (i < forward ? waited.shared : waited.shared_in_backward) += seconds;
    }
  });
  return waited;
}

// Answers travel, and so do their gradients, while the shared expert computes.
TEST(MoeLayerGiven, ASharedExpertHidesTheWayOfTheOthers) {
  const Waited without = wait_for_answers(false), with = wait_for_answers(true);
  EXPECT_GT(without.back, with.shared);
  EXPECT_GT(with.shared, 0);
  EXPECT_NEAR(with.back, without.back - with.shared, 1e-12);
  EXPECT_NEAR(with.there_in_backward,
              std::max(0.0, without.there_in_backward - with.shared_in_backward), 1e-12);
}

// A forward that is repeated counts its losses once.
TEST(MoeLayerGiven, LossesOfARepeatedForwardCountOnce) {
  OneLayer one({});
  ExtraLoss extra{.factor = 1}, twice{.factor = 1};
  Saved nothing = Saved::nothing();
  one.layer().forward(one.x.share(), nothing, {.extra = &extra});
  one.layer().forward(one.x.share(), nothing, {.extra = &twice});
  one.layer().forward(one.x.share(), nothing, {.recompute = true, .extra = &twice});
  EXPECT_GT(extra.sum, 0);
  EXPECT_EQ(extra.sum, twice.sum);
  EXPECT_EQ(extra.choices, twice.choices);
}

// 4 samples of 12 tokens; room for ceil(12 / 4) = 3 of each expert.
TEST(MoeLayerGiven, CountsWhatFoundNoRoom) {
  OneLayer one({.experts = {.count = 4, .capacity = 1}});
  ExtraLoss extra{.factor = 1};
  Saved saved;
  one.layer().forward(one.x.share(), saved, {.extra = &extra});
  std::vector<int> load(4 * 4);  // by sample and expert
  const std::vector<std::int64_t> best =
      best_experts(one.x.data<double>(), one.value("router.weight").data<double>(), 48, 6, 4);
  for (std::int64_t t = 0; t < 48; ++t) ++load[index(t / 12 * 4 + best[index(t)])];
  double dropped = 0, busiest = 0;
  for (const int tokens : load) dropped += std::max(0, tokens - 3);
  for (int b = 0; b < 4; ++b)
    busiest += 4 * *std::max_element(load.begin() + 4 * b, load.begin() + 4 * b + 4) / 12.0;
  EXPECT_EQ(extra.choices, 48);
  EXPECT_EQ(extra.dropped, dropped);
  EXPECT_EQ(extra.samples, 4);
  EXPECT_NEAR(extra.busiest, busiest, 1e-12);
}

// What a picture of the step shows: rows of each expert, what found no room, and what the router
// adds to the loss; once, also where a forward is repeated.
TEST(MoeLayerGiven, ATraceHasTheLoads) {
  OneLayer one({.experts = {.count = 4, .capacity = 1}});
  ExtraLoss extra{.factor = 1};
  Saved saved;
  one.trace.record(true);
  one.layer().forward(one.x.share(), saved, {.extra = &extra});
  one.layer().forward(one.x.share(), saved, {.recompute = true, .extra = &extra});
  const auto json = nlohmann::json::parse(one.trace.to_chrome_json());
  double rows = 0, loads = 0;
  for (const auto& row : json.at("traceEvents")) {
    if (row.at("name") == "moe.load") {
      ++loads;
      for (int e = 0; e < 4; ++e)
        rows += row.at("args").at("expert " + std::to_string(e)).get<double>();
    } else if (row.at("name") == "moe.router") {
      EXPECT_EQ(row.at("args").at("dropped"), extra.dropped);
      EXPECT_EQ(row.at("args").at("auxiliary loss"), extra.sum);
    }
  }
  EXPECT_EQ(loads, 1);
  EXPECT_EQ(rows, extra.choices - extra.dropped);
}

TEST(MoeLayerGiven, WrongSizesAreNamed) {
  EXPECT_TRUE(error_says([] { OneLayer({.experts = {.count = 4, .router = "best"}}); },
                         {"router 'best': expected switch, top2"}));
  launch({.ranks = 3, .bind = false}, [](const Rank& rank) {
    EXPECT_TRUE(
        error_says([&] { MoeLayer(rank, "moe", moe::layer_options({}), expert_ranks(rank.world)); },
                   {"moe.experts: 4 experts over 3 ranks: expected a multiple of 3"}));
    EXPECT_TRUE(error_says([&] { expert_ranks(rank.world, 2); },
                           {"experts in nodes of 2 ranks: expected one that divides 3"}));
  });
}

}  // namespace
}  // namespace aisc
