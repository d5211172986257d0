// How data parallelism scales where there is nothing but products: a step of a deep MLP, for real
// or on machines that are not there. `./aisc scale 03` runs it.
#include <fmt/format.h>
#include <omp.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "03_data_parallel/bucketed_reduction.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/system/polite_waits.h"
#include "common/model/emulated_device.h"
#include "common/nn/linear.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

class Relu final : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(Tensor x, Saved& saved, const Pass& /*pass*/) const override {
    Tensor y(x.shape(), x.dtype(), x.device());
    ops::relu(y, x);
    saved.push(std::move(x));
    return y;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& /*pass*/) override {
    const Tensor x = saved.pop();
    ops::relu_backward(dy, dy, x);
    return dy;
  }
};

// Half the sum of squares of what the layers made of a sample, less its target.
class HalfSquares final : public Loss {
 public:
  double forward(Tensor x, const Tensor& targets, Saved& saved,
                 const Pass& /*pass*/) const override {
    ops::scale(x, x, -1);
    ops::add(x, x, targets);
    const double loss = 0.5 * ops::sum_of_squares(x);
    saved.push(std::move(x));
    return loss;
  }
  Tensor backward(Saved& saved, double factor) const override {
    Tensor difference = saved.pop();
    ops::scale(difference, difference, -factor);
    return difference;
  }
};

struct Flags {
  int ranks = 1, layers = 12, steps = 8;
  std::int64_t width = 1024, samples = 512;
  double bucket_mb = 25;
  std::string overlap = "on", machine;
};

struct Mlp {
  Mlp(const Rank& rank, const Flags& flags) {
    for (int i = 0; i < flags.layers; ++i) {
      const std::string name = fmt::format("layers.{}", i);
      // He et al., 2015: signals keep their size through products and ReLUs.
      model.layers.push_back(std::make_unique<Linear>(
          rank, name, flags.width, flags.width, std::sqrt(2.0 / static_cast<double>(flags.width))));
      if (i + 1 < flags.layers)
        model.layers.push_back(std::make_unique<Relu>(rank, name + ".relu"));
    }
    model.loss = std::make_unique<HalfSquares>();
    store =
        std::make_unique<ParameterStore>(rank.device, make_units(model), ParameterStore::Options{});
    store->initialize(1);
  }
  Model model;
  std::unique_ptr<ParameterStore> store;
};

// The reducer that the flags name.
std::unique_ptr<Reducer> reducer(const Rank& rank, const Mlp& mlp, const Flags& flags) {
  if (flags.overlap == "none") return std::make_unique<SumAtTheEnd>(rank, *mlp.store);
  return bucketed({.bytes = static_cast<std::int64_t>(flags.bucket_mb * (1 << 20)),
                   .overlap = flags.overlap == "on"})(rank, mlp.model, *mlp.store);
}

struct Measured {
  double seconds = 0;
  std::map<std::string, double> parts;  // of all steps but the first
};

Measured train(const Rank& rank, const Flags& flags) {
  Mlp mlp(rank, flags);
  Sgd sgd(slices_of(mlp.store->parameters()), {});
  const std::unique_ptr<Reducer> sum = reducer(rank, mlp, flags);
  const Range mine = share_of(flags.samples, rank.world.rank(), rank.world.size());
  const Shape shape{mine.count(), flags.width};
  // Every rank has samples of its own; what they are does not matter for the time.
  Tensor inputs(shape, DType::F32, rank.device),
      targets = Tensor::zeros(shape, DType::F32, rank.device);
  ops::fill(inputs, 0.1);
  const double factor = 1.0 / static_cast<double>(flags.samples * flags.width);
  std::vector<double> seconds;
  for (int step = 0; step <= flags.steps; ++step) {
    if (step == 1) rank.trace.reset();  // the first fills the caches
    rank.world.barrier();
    const double begin = rank.clock.now();
    mlp.store->clear_grads();
    sum->begin();
    LayerHook* const hooks[] = {sum.get()};
    forward_backward(mlp.model, inputs, targets, {}, factor, hooks);
    sum->finish();
    {
      const auto span = rank.trace.span("optimizer");
      sgd.step({.learning_rate = 1e-3});
    }
    if (step > 0) seconds.push_back(rank.clock.now() - begin);
  }
  return {median(seconds), rank.trace.seconds_by_part()};
}

void report(const Measured& measured, const Flags& flags) {
  fmt::print("{:<28}{:>12}{:>9}\n", "part", "seconds", "share");
  for (const auto& [part, all] : measured.parts) {
    const double seconds = all / flags.steps;
    fmt::print("{:<28}{:>12.6f}{:>8.1f} %\n", part, seconds, 100 * seconds / measured.seconds);
  }
  fmt::print("\n{:<28}{:>12.6g} s\n{:<28}{:>12.6g}\n", "a step", measured.seconds, "samples/s",
             static_cast<double>(flags.samples) / measured.seconds);
}

void run(const Flags& flags) {
  if (flags.samples < flags.ranks)
    fail(fmt::format("--samples {}: some of {} ranks have none", flags.samples, flags.ranks));
  Measured first;
  const auto body = [&](const Rank& rank) {
    const Measured measured = train(rank, flags);
    if (rank.world.rank() == 0) first = measured;
  };
  if (flags.machine.empty()) {
    const PoliteWaits waits(flags.ranks);
    launch({.ranks = flags.ranks}, [&](const Rank& rank) {
      omp_set_num_threads(1);
      body(rank);
    });
  } else {
    const Machine machine = find_machine(flags.machine);
    launch(on_machine(machine, flags.ranks, {.meta = true}), body);
  }
  report(first, flags);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::program(
      argc, argv, "Steps of a deep MLP on ranks that share each batch; medians.",
      [&](aisc::CommandLine& line) {
        line.number("--ranks", flags.ranks, 1, 4096, "each with one thread");
        line.number("--layers", flags.layers, 1, 1000, "products");
        line.number("--width", flags.width, 1, 1 << 16, "columns of each");
        line.number("--samples", flags.samples, 1, 1 << 24, "of a step, of all ranks");
        line.number("--steps", flags.steps, 1, 1 << 20, "that are measured");
        line.number("--bucket-mb", flags.bucket_mb, 1e-3, 1e6, "MiB of gradients of a bucket");
        line.text("--overlap", flags.overlap, "buckets while backward runs, after it, or one sum",
                  {"on", "off", "none"});
        line.text("--machine", flags.machine,
                  "in virtual time, without numbers, on one of ./aisc machines");
      },
      [&] { aisc::run(flags); });
}
