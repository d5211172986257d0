// How fast layers of experts are on this machine: the products of eight experts beside one MLP that
// all tokens pass, a whole layer beside a dense one of as many FLOPs, and two ranks that share the
// experts beside one. What is compared runs in turns, and what comes out is checked. Where other
// programs compute, too, the medians are theirs as well: "at best" is of the fastest times, "by CPU
// time" of those in which the busier rank's thread had a core.
#include <fmt/format.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "08_moe/moe_layer.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/rng.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"
#include "common/nn/linear.h"
#include "common/nn/parameter_store.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kExperts = 8, kTokens = 2048, kSample = 256;

Tensor cast_to(DType dtype, const Tensor& x) {
  Tensor y(x.shape(), dtype, x.device());
  ops::cast(y, x);
  return y;
}
// (1, rows, C), the same whatever the rank.
Tensor random_rows(Range rows, std::int64_t C, DType dtype, Device& device,
                   const std::string& name) {
  const Tensor drawn({rows.count() / kSample, kSample, C}, DType::F32, device);
  const Philox random(1, name);
  for (std::int64_t i = 0; i < drawn.count(); ++i)
    drawn.data<float>()[i] =
        static_cast<float>(random.normal(static_cast<std::uint64_t>(rows.begin * C + i)));
  return cast_to(dtype, drawn);
}
std::vector<float> numbers_of(const Tensor& x) {
  const Tensor wide = cast_to(DType::F32, x);
  return {wide.data<float>(), wide.data<float>() + x.count()};
}

// Throws Error unless each row of `found` is that of `expected` times a number between `least` and
// 1 (a gate), as close as sums in F32 are, or numbers that were rounded to BF16 some times.
void check_rows(const std::string& what, const Tensor& found, const Tensor& expected,
                double least = 1) {
  const std::vector<float> f = numbers_of(found), e = numbers_of(expected);
  const auto C = static_cast<std::size_t>(expected.shape()[-1]);
  double largest = 0;
  for (const float number : e) largest = std::max(largest, std::abs(double{number}));
  const double allowed = (found.dtype() == DType::BF16 ? 3e-2 : 2e-5) * largest;
  for (std::size_t row = 0; row < e.size(); row += C) {
    double fe = 0, ee = 0;
    for (std::size_t i = row; i < row + C; ++i) {
      fe += double{f[i]} * double{e[i]};
      ee += double{e[i]} * double{e[i]};
    }
    const double gate = least == 1 ? 1 : std::clamp(fe / ee, least, 1.0);
    for (std::size_t i = row; i < row + C; ++i)
      if (const double apart = std::abs(double{f[i]} - gate * double{e[i]}); !(apart <= allowed))
        fail(fmt::format("{}: {:.3g} apart where {:.3g} is allowed", what, apart, allowed));
  }
}

double fastest(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

// A layer with memory for its parameters, which runs forward and backward again and again.
class Runner {
 public:
  Runner(const Rank& rank, std::unique_ptr<Layer> layer, DType dtype) : rank_(rank) {
    model_.layers.push_back(std::move(layer));
    for (const Sync sync : {Sync::Data, Sync::ExpertData})
      if (auto units = make_units(model_, sync); !units.empty()) {
        stores_.push_back(std::make_unique<ParameterStore>(
            rank.device, std::move(units), ParameterStore::Options{.value_dtype = dtype}));
        stores_.back()->initialize(1);
      }
  }
  // Returns seconds.
  double run(const Tensor& x, const Tensor& dy) {
    for (const auto& store : stores_) store->clear_grads();
    const double begin = rank_.clock.now();
    Saved saved;
    y_ = model_.layers[0]->forward(x.share(), saved, {});
    dx_ = model_.layers[0]->backward(dy.share(), saved, {});
    return rank_.clock.now() - begin;
  }
  // All experts of a stack become the first, so that it is all the same where a token goes.
  void make_experts_alike() {
    for (const auto& store : stores_)
      for (Parameter* p : store->parameters())
        for (std::int64_t e = 1; p->sync == Sync::ExpertData && e < p->shape[0]; ++e)
          rank_.device.copy(p->value().rows(e, e + 1), p->value().rows(0, 1));
  }
  Layer& layer() { return *model_.layers[0]; }
  const Tensor& y() const { return y_; }
  const Tensor& dx() const { return dx_; }

 private:
  Rank rank_;
  Model model_;
  std::vector<std::unique_ptr<ParameterStore>> stores_;
  Tensor y_, dx_;
};

// ---- products of experts ------------------------------------------------------------------------

// Experts without a router: the first counts[0] rows are the first one's.
class Grouped final : public Layer {
 public:
  Grouped(const Rank& rank, std::int64_t experts, std::int64_t C)
      : Layer(rank, "experts"), experts_(rank, "experts", {experts, C, 4 * C, 0.02}, 0, 1) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& /*pass*/) const override {
    const Shape shape = x.shape();
    return experts_.forward(as_one(std::move(x)), counts, saved).reshaped(shape);
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    const Shape shape = dy.shape();
    return experts_.backward(as_one(std::move(dy)), counts, saved, pass).reshaped(shape);
  }
  std::vector<Parameter*> parameters() override { return experts_.parameters(); }

  std::vector<std::int64_t> counts{};

 private:
  static Tensor as_one(Tensor x) {
    const Shape rows{x.shape().rows(), x.shape()[-1]};
    return std::move(x).reshaped(rows);
  }
  Experts experts_;
};

// Tokens of each expert: as many each; one with 569 beside seven that get less and less, and always
// the same; or other ones each time, as in training.
std::vector<std::int64_t> shares(const std::string& kind, int round) {
  if (kind == "even") return std::vector<std::int64_t>(kExperts, kTokens / kExperts);
  if (kind == "uneven") return {569, 455, 341, 250, 182, 125, 80, 46};
  const Philox random(2, "shares", static_cast<std::uint64_t>(round + 1));
  std::vector<std::int64_t> counts(kExperts);
  for (std::uint64_t token = 0; token < kTokens; ++token)
    ++counts[static_cast<std::size_t>(static_cast<double>(kExperts) * random.uniform(token))];
  return counts;
}

Json products(int rounds, std::int64_t C) {
  fmt::print(
      "Eight experts of {} columns, 2048 tokens, forward and backward on one thread, beside one "
      "MLP "
      "of all tokens\n\n",
      C);
  Json rows = Json::array();
  launch({.ranks = 1}, [&](const Rank& rank) {
    omp_set_num_threads(1);
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const Tensor x = random_rows({0, kTokens}, C, dtype, rank.device, "x"),
                   dy = random_rows({0, kTokens}, C, dtype, rank.device, "dy");
      const auto runner_of = [&](std::int64_t experts) {
        auto runner =
            std::make_unique<Runner>(rank, std::make_unique<Grouped>(rank, experts, C), dtype);
        runner->make_experts_alike();
        return runner;
      };
      const auto dense = runner_of(1), grouped = runner_of(kExperts);
      dynamic_cast<Grouped&>(dense->layer()).counts = {kTokens};
      struct Shares {
        std::string kind;
        std::vector<double> seconds{}, ratios{};
      };
      std::vector<Shares> all{{"even"}, {"uneven"}, {"drawn"}};
      std::vector<double> dense_seconds;
      PeakEstimate peak;
      for (int round = -1; round < rounds; ++round) {  // the first prepares what the others use
        peak.add(measure_peak_slice(DType::F32, 1));
        const double one = dense->run(x, dy);
        if (round >= 0) dense_seconds.push_back(one);
        for (Shares& s : all) {
          dynamic_cast<Grouped&>(grouped->layer()).counts = shares(s.kind, round);
          const double many = grouped->run(x, dy);
          check_rows("the experts' answers", grouped->y(), dense->y());
          check_rows("their gradients", grouped->dx(), dense->dx());
          if (round < 0) continue;
          s.seconds.push_back(many);
          s.ratios.push_back(one / many);
        }
      }
      const double flops = 3.0 * 2.0 * 8.0 * static_cast<double>(C * C * kTokens);
      for (const Shares& s : all)
        rows.push_back({{"shares", s.kind},
                        {"type", name_of(dtype)},
                        {"ms", 1e3 * median(s.seconds)},
                        {"dense ms", 1e3 * median(dense_seconds)},
                        {"of one dense", median(s.ratios)},
                        {"at best", fastest(dense_seconds) / fastest(s.seconds)},
                        {"of F32's peak", flops / median(s.seconds) / peak.flops()}});
    }
  });
  print_table(rows);
  return rows;
}

// ---- a whole layer ------------------------------------------------------------------------------

MoeLayer::Options options_of(const std::string& router, std::int64_t C) {
  return {.experts = {.count = kExperts, .router = router, .capacity = 0},
          .width = C,
          .hidden = 4 * C,
          .residual_stddev = 0.02};
}

Json layers(int rounds, std::int64_t C) {
  fmt::print(
      "\nA layer of eight experts, without a limit, beside a dense MLP of as many FLOPs, on one "
      "thread, F32\n\n");
  struct Case {
    std::string router;
    std::unique_ptr<Runner> dense, experts;
    std::vector<double> dense_seconds{}, seconds{}, ratios{}, products{}, rest{};
  };
  Json rows = Json::array();
  launch({.ranks = 1}, [&](const Rank& rank) {
    omp_set_num_threads(1);
    const Tensor x = random_rows({0, kTokens}, C, DType::F32, rank.device, "x"),
                 dy = random_rows({0, kTokens}, C, DType::F32, rank.device, "dy");
    std::vector<Case> cases;
    for (const auto& [router, chosen] : {std::pair{"switch", 1}, {"top2", 2}}) {
      const std::int64_t hidden = chosen * 4 * C;
      cases.push_back(
          {router,
           std::make_unique<Runner>(
               rank,
               in_sequence(
                   rank, "mlp",
                   std::make_unique<Linear>(rank, "mlp.fc", C, hidden, 0.02, Linear::Gelu::Behind),
                   std::make_unique<Linear>(rank, "mlp.project", hidden, C, 0.02,
                                            Linear::Gelu::Before)),
               DType::F32),
           std::make_unique<Runner>(
               rank, std::make_unique<MoeLayer>(rank, "moe", options_of(router, C)), DType::F32)});
      cases.back().experts->make_experts_alike();
    }
    Runner one(rank, std::make_unique<Grouped>(rank, 1, C), DType::F32);
    dynamic_cast<Grouped&>(one.layer()).counts = {kTokens};
    for (int round = -1; round < rounds; ++round)
      for (Case& c : cases) {
        const double dense = c.dense->run(x, dy);
        rank.trace.reset();
        const double experts = c.experts->run(x, dy);
        if (round < 0) continue;  // the first prepares what the others use
        c.dense_seconds.push_back(dense);
        c.seconds.push_back(experts);
        c.ratios.push_back(dense / experts);
        const double products = rank.trace.seconds_by_part()["product"];
        c.products.push_back(products);
        c.rest.push_back(experts - products);
      }
    one.run(x, dy);
    for (Case& c : cases) {
      // Names draw weights: the layer's experts become the one MLP's.
      const std::vector<Parameter*> to = c.experts->layer().parameters();
      const std::vector<Parameter*> from = one.layer().parameters();
      for (std::size_t i = 0; i < from.size(); ++i)
        for (std::int64_t e = 0; e < kExperts; ++e)
          rank.device.copy(to[i + 1]->value().rows(e, e + 1), from[i]->value());
      c.experts->run(x, dy);
      check_rows("router " + c.router, c.experts->y(), one.y(),
                 c.router == "switch" ? 1.0 / kExperts : 1);
      rows.push_back({{"router", c.router},
                      {"ms", 1e3 * median(c.seconds)},
                      {"products ms", 1e3 * median(c.products)},
                      {"the rest ms", 1e3 * median(c.rest)},
                      {"dense ms", 1e3 * median(c.dense_seconds)},
                      {"of the dense", median(c.ratios)},
                      {"at best", fastest(c.dense_seconds) / fastest(c.seconds)}});
    }
  });
  print_table(rows);
  return rows;
}

// ---- experts of two ranks -----------------------------------------------------------------------

// In which the calling thread computed; what others compute is no part of it.
double seconds_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Json ranks(int rounds, std::int64_t C) {
  fmt::print(
      "\nThe same layer, all 2048 tokens: one rank of one thread, and two that share the experts, "
      "F32\n\n");
  Json rows = Json::array();
  const PoliteWaits waits(2);
  for (const char* router : {"switch", "top2"}) {
    std::vector<double> alone_seconds, seconds, ratios, cpu_ratios;
    std::array<double, 2> cpu_seconds{};  // of each rank's thread
    launch({.ranks = 2}, [&](const Rank& rank) {
      omp_set_num_threads(1);
      const int me = rank.world.rank();
      const Range own = share_of(kTokens, me, 2);
      const auto drawn = [&](Range of, const char* name) {
        return random_rows(of, C, DType::F32, rank.device, name);
      };
      const Tensor x = drawn({0, kTokens}, "x"), dy = drawn({0, kTokens}, "dy");
      const Tensor own_x = drawn(own, "x"), own_dy = drawn(own, "dy");
      Runner alone(rank, std::make_unique<MoeLayer>(rank, "moe", options_of(router, C)),
                   DType::F32);
      Runner shared(
          rank,
          std::make_unique<MoeLayer>(rank, "moe", options_of(router, C), expert_ranks(rank.world)),
          DType::F32);
      const auto of_own = [&](const Tensor& all) {
        Tensor part(own_x.shape(), all.dtype(), all.device());
        all.device().copy(as_rows(part), as_rows(all).rows(own.begin, own.end));
        return part;
      };
      const auto until_all_are_done = [&](auto work) {
        rank.world.barrier();
        const double begin = rank.clock.now(), cpu_begin = seconds_of_this_thread();
        work();
        cpu_seconds[static_cast<std::size_t>(me)] = seconds_of_this_thread() - cpu_begin;
        rank.world.barrier();
        return rank.clock.now() - begin;
      };
      for (int round = -1; round < rounds; ++round) {
        const double one = until_all_are_done([&] {
          if (me == 0 || round < 0) alone.run(x, dy);
        });
        const double one_cpu = cpu_seconds[0];
        const double two = until_all_are_done([&] { shared.run(own_x, own_dy); });
        if (round < 0) {  // the first prepares what the others use
          check_rows("two ranks' answers", shared.y(), of_own(alone.y()));
          check_rows("two ranks' gradients", shared.dx(), of_own(alone.dx()));
        } else if (me == 0) {
          alone_seconds.push_back(one);
          seconds.push_back(two);
          ratios.push_back(one / two);
          cpu_ratios.push_back(one_cpu / std::max(cpu_seconds[0], cpu_seconds[1]));
        }
      }
    });
    rows.push_back({{"router", router},
                    {"1 rank ms", 1e3 * median(alone_seconds)},
                    {"2 ranks ms", 1e3 * median(seconds)},
                    {"times as fast", median(ratios)},
                    {"at best", fastest(alone_seconds) / fastest(seconds)},
                    {"by CPU time", median(cpu_ratios)}});
  }
  print_table(rows);
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  using namespace aisc;
  std::string part = "all";
  int rounds = 9, width = 384;
  return measuring_program(
      argc, argv, "How fast layers of experts are on this machine, on one thread and on two ranks.",
      [&](CommandLine& line) {
        line.text("--part", part, "what is measured", {"all", "products", "layers", "ranks"});
        line.number("--rounds", rounds, 1, 10000,
                    "times that each is measured, in turns; the median counts");
        line.number("--width", width, 8, 4096,
                    "columns of a token; experts have four times as many");
      },
      [&] {
        Json json;
        const auto wanted = [&](const char* name) { return part == "all" || part == name; };
        if (wanted("products")) json["products"] = products(rounds, width);
        if (wanted("layers")) json["layers"] = layers(rounds, width);
        if (wanted("ranks")) json["ranks"] = ranks(rounds, width);
        return json;
      });
}
