// How fast attention is on this machine: on one thread beside the thread's peak, shared by two
// ranks of a thread each beside one, and a layer of two tensor ranks with shared tokens beside one
// without. What is compared runs in turns, and what comes out is checked. Where other programs
// compute, too, the medians are theirs as well: "at best" is of the fastest times.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/ring_attention.h"
#include "07_sequence_parallel/sequence_block.h"
#include "07_sequence_parallel/ulysses.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/rng.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// gpt2-124m's: 12 heads of 64 columns.
constexpr std::int64_t kHeads = 12, kColumns = 64, kWidth = kHeads * kColumns, kTokens = 1024;

Tensor cast_to(DType dtype, const Tensor& x) {
  Tensor y(x.shape(), dtype, x.device());
  ops::cast(y, x);
  return y;
}
Tensor random_tensor(const Shape& shape, DType dtype, Device& device, const std::string& name) {
  const Tensor drawn(shape, DType::F32, device);
  const Philox random(1, name);
  auto* value = drawn.data<float>();
  for (std::int64_t i = 0; i < shape.count(); ++i)
    value[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  return cast_to(dtype, drawn);
}
std::vector<float> numbers_of(const Tensor& x) {
  const Tensor wide = cast_to(DType::F32, x);
  return {wide.data<float>(), wide.data<float>() + x.count()};
}

// Throws Error unless both are as close as sums in F32 are, or numbers that were rounded to BF16
// some times.
void check(const std::string& what, DType dtype, const std::vector<float>& found,
           const std::vector<float>& expected) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double apart = std::abs(double{found[i]} - double{expected[i]});
    difference = std::isnan(apart) ? INFINITY : std::max(difference, apart);
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  const double allowed = (dtype == DType::BF16 ? 2e-2 : 2e-5) * largest;
  if (difference <= allowed) return;
  fail(fmt::format("{}: {:.3g} apart where {:.3g} is allowed", what, difference, allowed));
}

double least(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

template <class F>
double seconds_of(const Clock& clock, F work) {
  const double begin = clock.now();
  work();
  return clock.now() - begin;
}
// Until all ranks are done with it.
template <class F>
double seconds_of(const Rank& rank, F work) {
  rank.world.barrier();
  return seconds_of(rank.clock, [&] {
    work();
    rank.world.barrier();
  });
}

// ---- attention on one thread --------------------------------------------------------------------

struct Attention {
  Attention(Tensor qkv_, Tensor dout_)
      : dtype(qkv_.dtype()),
        T(qkv_.shape()[1]),
        qkv(std::move(qkv_)),
        dout(std::move(dout_)),
        out(dout.shape(), dtype, dout.device()),
        log_sum_exp({1, kHeads, T}, statistics_of(dtype), dout.device()),
        dqkv(qkv.shape(), dtype, dout.device()) {}

  void forward() const { ops::causal_attention(out, log_sum_exp, qkv, kHeads); }
  void backward() const {
    ops::causal_attention_backward(dqkv, dout, qkv, out, log_sum_exp, kHeads);
  }
  // Against the same numbers in F64, whose exponentials are the C library's.
  void check_all() const {
    const Attention exact(cast_to(DType::F64, qkv), cast_to(DType::F64, dout));
    exact.forward();
    exact.backward();
    check("attention", dtype, numbers_of(out), numbers_of(exact.out));
    check("its gradients", dtype, numbers_of(dqkv), numbers_of(exact.dqkv));
  }
  // Pairs of a query and a key that it sees, times multiply-adds: of two products of heads' columns
  // forward, of five backward.
  double flops(int products) const {
    return 2.0 * products * kColumns * kHeads * static_cast<double>(T * (T + 1) / 2);
  }

  DType dtype;
  std::int64_t T;
  Tensor qkv, dout, out, log_sum_exp, dqkv;
  std::vector<double> forward_seconds{}, backward_seconds{}, both_seconds{};
};

Json attention(int rounds) {
  fmt::print("Attention of 12 heads of 64 columns on one thread\n\n");
  const Cores cores;
  cores.bind(0);
  omp_set_num_threads(1);
  CpuDevice device;
  const Clock clock = Clock::wall();
  std::vector<Attention> cases;
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const std::int64_t T : {std::int64_t{256}, kTokens})
      cases.emplace_back(random_tensor({1, T, 3 * kWidth}, dtype, device, "qkv"),
                         random_tensor({1, T, kWidth}, dtype, device, "dout"));
  PeakEstimate peak;
  for (int round = -1; round < rounds; ++round) {
    peak.add(measure_peak_slice(DType::F32, 1));
    for (Attention& c : cases)
      for (std::int64_t call = 0; call < kTokens / c.T; ++call) {
        const double forward = seconds_of(clock, [&] { c.forward(); });
        const double backward = seconds_of(clock, [&] { c.backward(); });
        if (round < 0) continue;  // the first prepares what the others use
        c.forward_seconds.push_back(forward);
        c.backward_seconds.push_back(backward);
        c.both_seconds.push_back(forward + backward);
      }
  }
  for (const Attention& c : cases) c.check_all();
  cores.release();
  Json rows = Json::array();
  for (const Attention& c : cases) {
    const auto add = [&](const char* what, int products, const std::vector<double>& seconds) {
      const double rate = c.flops(products) / median(seconds);
      rows.push_back({{"what", what},
                      {"type", name_of(c.dtype)},
                      {"tokens", c.T},
                      {"ms", 1e3 * median(seconds)},
                      {"GFLOP/s", rate / 1e9},
                      {"peak", peak.flops() / 1e9},
                      {"of peak", rate / peak.flops()},
                      {"at best", c.flops(products) / least(seconds) / peak.flops()}});
    };
    add("forward", 2, c.forward_seconds);
    add("backward", 5, c.backward_seconds);
    add("both", 7, c.both_seconds);
  }
  print_table(rows);
  return rows;
}

// ---- attention of two ranks ---------------------------------------------------------------------

struct Form {
  std::string name;
  ContextForm form;
  std::vector<double> seconds{}, ratios{};
};

// What is whole, (1, T, columns), of the tokens of a part.
Tensor part_of(const Tensor& whole, const TokenPart& part) {
  Tensor own(whole.shape().with(1, part.count), whole.dtype(), whole.device());
  const std::int64_t columns = whole.shape()[2];
  for (std::int64_t t = 0; t < part.count; ++t)
    whole.device().copy(own.view().flat(t * columns, columns),
                        whole.view().flat(part.runs.position(t) * columns, columns));
  return own;
}

// Forward and backward through `core`, again and again.
class Core {
 public:
  Core(std::unique_ptr<Layer> core, const TokenPart& part, const Tensor& qkv, const Tensor& dout)
      : core_(std::move(core)),
        pass_{.tokens = part.runs, .sequence = qkv.shape()[1]},
        qkv_(part_of(qkv, part)),
        dout_(part_of(dout, part)) {}
  void run() {
    Saved saved;
    out_ = core_->forward(qkv_.share(), saved, pass_);
    dqkv_ = core_->backward(dout_.share(), saved, pass_);
  }
  const Tensor& out() const { return out_; }
  const Tensor& dqkv() const { return dqkv_; }

 private:
  std::unique_ptr<Layer> core_;
  Pass pass_;
  Tensor qkv_, dout_, out_, dqkv_;
};

std::unique_ptr<Layer> core_of(const Rank& rank, ContextForm form) {
  if (form == ContextForm::Ulysses)
    return std::make_unique<Ulysses>(rank, rank.world, "attention", kHeads);
  return std::make_unique<RingAttention>(rank, rank.world, "attention", kHeads, form);
}

void shared_attention(DType dtype, int rounds, std::vector<Form>& forms,
                      std::vector<double>& alone_seconds) {
  const PoliteWaits waits(2);
  launch({.ranks = 2}, [&](const Rank& rank) {
    omp_set_num_threads(1);
    const int me = rank.world.rank();
    const Tensor qkv = random_tensor({1, kTokens, 3 * kWidth}, dtype, rank.device, "qkv");
    const Tensor dout = random_tensor({1, kTokens, kWidth}, dtype, rank.device, "dout");
    Core alone(std::make_unique<CausalCore>(rank, "attention", kHeads), {.count = kTokens}, qkv,
               dout);
    std::vector<Core> shared;
    std::vector<TokenPart> parts;
    for (const Form& form : forms) {
      parts.push_back(token_part(form.form, me, 2, kTokens));
      shared.emplace_back(core_of(rank, form.form), parts.back(), qkv, dout);
    }
    alone.run();
    for (std::size_t i = 0; i < forms.size(); ++i) {
      shared[i].run();
      check(forms[i].name, dtype, numbers_of(shared[i].out()),
            numbers_of(part_of(alone.out(), parts[i])));
      check(forms[i].name + "'s gradients", dtype, numbers_of(shared[i].dqkv()),
            numbers_of(part_of(alone.dqkv(), parts[i])));
    }
    for (int round = 0; round < rounds; ++round) {
      const double one = seconds_of(rank, [&] {
        if (me == 0) alone.run();
      });
      if (me == 0) alone_seconds.push_back(one);
      for (std::size_t i = 0; i < forms.size(); ++i) {
        const double two = seconds_of(rank, [&] { shared[i].run(); });
        if (me > 0) continue;
        forms[i].seconds.push_back(two);
        forms[i].ratios.push_back(one / two);
      }
    }
  });
}

Json context(int rounds) {
  fmt::print(
      "The same of 1024 tokens, forward and backward: one rank, and two that share them\n\n");
  Json rows = Json::array();
  for (const DType dtype : {DType::F32, DType::BF16}) {
    std::vector<Form> forms{{"ring", ContextForm::Ring},
                            {"zigzag", ContextForm::Zigzag},
                            {"ulysses", ContextForm::Ulysses}};
    std::vector<double> alone;
    shared_attention(dtype, rounds, forms, alone);
    for (const Form& form : forms)
      rows.push_back({{"form", form.name},
                      {"type", name_of(dtype)},
                      {"1 rank ms", 1e3 * median(alone)},
                      {"2 ranks ms", 1e3 * median(form.seconds)},
                      {"times as fast", median(form.ratios)},
                      {"at best", least(alone) / least(form.seconds)}});
  }
  print_table(rows);
  return rows;
}

// ---- a layer of two tensor ranks ----------------------------------------------------------------

// A block of gpt2-124m.
class Block {
 public:
  Block(const Rank& rank, const GptParts& parts)
      : model_(make_gpt(rank, {.layers = 1, .context = kTokens, .vocabulary = 256}, parts)) {
    for (const Sync sync : {Sync::Data, Sync::DataAndTensor})
      if (auto units = make_units(model_, sync); !units.empty()) {
        stores_.push_back(std::make_unique<ParameterStore>(rank.device, std::move(units),
                                                           ParameterStore::Options{}));
        stores_.back()->initialize(1);
      }
  }
  // dx for some x and dy, (1, own tokens, C).
  Tensor run(const Tensor& x, const Tensor& dy) {
    for (const auto& store : stores_) store->clear_grads();
    constexpr LayerRange kBlock{3, 4};  // behind embedding, positions and dropout
    std::vector<Saved> saved(1);
    forward_layers(model_, kBlock, x.clone(), saved, {});
    return backward_layers(model_, kBlock, dy.clone(), saved, {});
  }

 private:
  Model model_;
  std::vector<std::unique_ptr<ParameterStore>> stores_;
};

Json tensor(int rounds) {
  fmt::print(
      "A block of gpt2-124m of two tensor ranks, 1024 tokens, forward and backward, F32\n\n");
  std::vector<double> plain_seconds, shared_seconds, ratios;
  const PoliteWaits waits(2);
  launch({.ranks = 2}, [&](const Rank& rank) {
    omp_set_num_threads(1);
    const int me = rank.world.rank();
    const TokenPart own = token_part(ContextForm::Ring, me, 2, kTokens);
    const Tensor x = random_tensor({1, kTokens, kWidth}, DType::F32, rank.device, "x"),
                 dy = random_tensor({1, kTokens, kWidth}, DType::F32, rank.device, "dy");
    const Tensor own_x = part_of(x, own), own_dy = part_of(dy, own);
    const GptParts parts = tensor_parallel_parts(rank.world);
    Block plain(rank, parts), shared(rank, sequence_parallel_parts(rank.world, parts));
    const Tensor whole = plain.run(x, dy), mine = shared.run(own_x, own_dy);
    check("a layer with shared tokens", DType::F32, numbers_of(mine),
          numbers_of(part_of(whole, own)));
    for (int round = 0; round < rounds; ++round) {
      const double without = seconds_of(rank, [&] { plain.run(x, dy); });
      const double with = seconds_of(rank, [&] { shared.run(own_x, own_dy); });
      if (me > 0) continue;
      plain_seconds.push_back(without);
      shared_seconds.push_back(with);
      ratios.push_back(without / with);
    }
  });
  const Json rows{{{"ranks", "tp 2"},
                   {"ms", 1e3 * median(plain_seconds)},
                   {"times as fast", 1.0},
                   {"at best", 1.0}},
                  {{"ranks", "tp 2, sp"},
                   {"ms", 1e3 * median(shared_seconds)},
                   {"times as fast", median(ratios)},
                   {"at best", least(plain_seconds) / least(shared_seconds)}}};
  print_table(rows);
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  using namespace aisc;
  std::string part = "all";
  int rounds = 15;
  return measuring_program(
      argc, argv, "How fast attention is on this machine, on one thread and shared by two ranks.",
      [&](CommandLine& line) {
        line.text("--part", part, "what is measured", {"all", "attention", "context", "tensor"});
        line.number("--rounds", rounds, 1, 10000,
                    "times that each is measured, in turns; the median counts");
      },
      [&] {
        Json json;
        const auto wanted = [&](const char* name) { return part == "all" || part == name; };
        if (wanted("attention")) json["attention"] = attention(rounds);
        if (wanted("context")) json["context"] = context(rounds);
        if (wanted("tensor")) json["tensor"] = tensor(rounds);
        return json;
      });
}
