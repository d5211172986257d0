// What this module is about, in numbers: all of them in virtual time (docs/virtual_time.md), so
// that they are the same on every machine.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "03_data_parallel/bucketed_reduction.h"
#include "03_data_parallel/layered.h"
#include "03_data_parallel/loader.h"
#include "03_data_parallel/local_steps.h"
#include "03_data_parallel/markov_text.h"
#include "03_data_parallel/more/parameter_server.h"
#include "03_data_parallel/onebit_adam.h"
#include "common/comm/simulate.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"
#include "common/train/timeline.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// --- who does what when ------------------------------------------------------------------------

// Writes down what each layer does, for a picture.
class Diary final : public LayerHook {
 public:
  explicit Diary(const Clock& clock) : clock_(clock) {}
  void before_forward(std::size_t, const Pass&) override { begin_ = clock_.now(); }
  void after_forward(std::size_t layer, const Pass& pass, Saved&) override {
    write("forward", layer, pass);
  }
  void before_backward(std::size_t, const Pass&, Saved&) override { begin_ = clock_.now(); }
  void after_backward(std::size_t layer, const Pass& pass) override {
    write("backward", layer, pass);
  }
  std::vector<TraceEvent> spans;

 private:
  void write(const char* what, std::size_t layer, const Pass& pass) {
    spans.push_back({.name = fmt::format("{}.{}", layer, pass.micro_batch),
                     .part = what,
                     .begin_seconds = begin_,
                     .end_seconds = clock_.now()});
  }
  const Clock& clock_;
  double begin_ = 0;
};

constexpr int kTimelineRanks = 16, kMicroBatches = 4;

// A step of a GPT of six blocks on two nodes, without numbers.
Json timeline(const Machine& machine, const MicroBatchLoop& loop, bool overlap) {
  Json result;
  launch(on_machine(machine, kTimelineRanks, {.meta = true}), [&](const Rank& rank) {
    const GptConfig config{.layers = 6,
                           .heads = 16,
                           .width = 2048,
                           .context = 1024,
                           .vocabulary = 8192,
                           .dtype = DType::BF16};
    const Model model = make_gpt(rank, config, gpt2_parts());
    ParameterStore store(rank.device, make_units(model),
                         {.value_dtype = DType::BF16, .grad_dtype = DType::BF16});
    BucketedReduction reduction(rank, model, store,
                                bucket_layout(store.layout().count(), 1 << 19, 25 << 19), overlap);
    Diary diary(rank.clock);
    LayerHook* const hooks[] = {&diary, &reduction};
    const auto read = [&](std::int64_t m) {
      const Shape shape{2, config.context};
      return MicroBatch{
          .batch = {Tensor(shape, DType::I32, rank.device), Tensor(shape, DType::I32, rank.device)},
          .pass = {.micro_batch = static_cast<int>(m), .last_micro_batch = m + 1 == kMicroBatches}};
    };
    rank.trace.record(true);
    reduction.begin();
    loop(rank, model, kMicroBatches, read, 1, hooks);
    const double backward = rank.clock.now();
    reduction.finish();
    if (rank.world.rank() > 0) return;
    TimelineRow rows[] = {{"layers", diary.spans}, {"sums", {}}};
    for (TraceEvent event : rank.trace.events()) {
      if (event.lane == 0) continue;
      event.part = "communication";
      rows[1].events.push_back(std::move(event));
    }
    result = {{"rows", timeline_json(rows)},
              {"backward_seconds", backward},
              {"seconds", rank.clock.now()}};
  });
  return result;
}

Json who_does_what() {
  const Machine machine = find_machine("dgx-a100");
  fmt::print("A step of 6 blocks on two nodes of 8 A100, {} micro-batches\n\n{:<28}{:>12}{:>12}\n",
             kMicroBatches, "", "a step", "exposed");
  Json all;
  const auto add = [&](const char* name, const MicroBatchLoop& loop, bool overlap) {
    all[name] = timeline(machine, loop, overlap);
    const double seconds = all[name]["seconds"], backward = all[name]["backward_seconds"];
    fmt::print("{:<28}{:>9.2f} ms{:>9.2f} ms\n", name, 1e3 * seconds, 1e3 * (seconds - backward));
  };
  add("all sums at the end", one_after_another, false);
  add("buckets while it runs", one_after_another, true);
  add("layered accumulation", layered, true);
  return all;
}

// --- not waiting -------------------------------------------------------------------------------

constexpr int kWorkers = 8, kSlow = 3;
constexpr double kSlower = 4;

GptConfig small_gpt() {
  return {.layers = 1, .heads = 2, .width = 32, .context = 32, .vocabulary = 32};
}

// Loss of a worker's batch, when it was known.
struct Point {
  double seconds;
  std::int64_t samples;  // of all workers, up to it
  double loss;
};

// One worker in eight is `kSlower` times slower than the machine.
LaunchOptions with_a_slow_rank(const Machine& machine, const Machine& slow, int ranks, int which) {
  LaunchOptions options = on_machine(machine, ranks);
  options.make_device = [&machine, &slow, which](int rank, Clock& clock) {
    return std::make_unique<EmulatedDevice>(clock, rank == which ? slow : machine);
  };
  return options;
}

constexpr std::int64_t kSamplesOfAWorker = 4;

TrainConfig small_run(std::int64_t steps) {
  TrainConfig c;
  c.model = small_gpt();
  c.batch = kWorkers * kSamplesOfAWorker;
  c.steps = steps;
  c.warmup_steps = 0;
  c.learning_rate = c.min_learning_rate = 4e-3;
  c.clip = 0;
  return c;
}

std::vector<Point> in_step(const Machine& machine, const Machine& slow, const StepParts& parts,
                           std::int64_t steps) {
  std::vector<Point> points;
  const auto text = markov_text(40000);
  launch(with_a_slow_rank(machine, slow, kWorkers, kSlow), [&](const Rank& rank) {
    const TrainConfig config = small_run(steps);
    Trainer trainer(rank, config, parts);
    const BatchSampler data(text, config.model.context, 1);
    for (std::int64_t i = 0; i < steps; ++i) {
      const double loss = trainer.step(data).loss;
      if (rank.world.rank() == 0)
        points.push_back({rank.clock.now(), trainer.samples_taken(), loss});
    }
  });
  return points;
}

// Rank 0 serves, ranks 1 .. 8 work.
std::vector<Point> asynchronous(const Machine& machine, const Machine& slow, std::int64_t staleness,
                                std::int64_t steps, double& mean_age) {
  std::vector<Point> points;
  const auto text = markov_text(40000);
  std::vector<std::vector<double>> losses(kWorkers + 1);
  launch(with_a_slow_rank(machine, slow, kWorkers + 1, kSlow), [&](const Rank& rank) {
    const GptConfig config = small_gpt();
    const Model model = make_gpt(rank, config, gpt2_parts());
    ParameterStore store(rank.device, make_units(model), {});
    store.initialize(1);
    const auto me = static_cast<std::size_t>(rank.world.rank());
    if (me > 0) {
      const BatchSampler data(text, config.context, 1 + me);
      const double tokens = static_cast<double>(kSamplesOfAWorker * config.context);
      work(rank, store.values(), store.grads(), [&](std::int64_t step) {
        store.clear_grads();
        const Batch batch = data.batch(rank.device, step * kSamplesOfAWorker, kSamplesOfAWorker);
        losses[me].push_back(forward_backward(model, batch.tokens, batch.targets, {}, 1 / tokens) /
                             tokens);
        store.complete_grads();
      });
      return;
    }
    // An eighth of the samples of an update in step, with an eighth of its learning rate.
    AdamW adam(slices_of(store.parameters()), {});
    const auto updates = serve(
        rank, store.values(), store.grads(), {.updates = steps * kWorkers, .staleness = staleness},
        [&](const ServedUpdate& update) {
          adam.step({.learning_rate = 4e-3 / kWorkers});
          const auto w = static_cast<std::size_t>(update.worker);
          points.push_back({rank.clock.now(), adam.steps() * kSamplesOfAWorker,
                            losses[w][static_cast<std::size_t>(update.step)]});
        });
    mean_age = 0;
    for (const ServedUpdate& update : updates)
      mean_age += static_cast<double>(update.age) / static_cast<double>(updates.size());
  });
  return points;
}

// The mean loss of the last so many samples, up to here.
double recent_loss(const std::vector<Point>& points, std::size_t end, std::int64_t samples) {
  double sum = 0, count = 0;
  for (std::size_t i = end; i-- > 0 && points[end - 1].samples - points[i].samples < samples;)
    sum += points[i].loss, ++count;
  return sum / count;
}

Json not_waiting(std::int64_t steps) {
  const Machine machine = find_machine("xeon-8180");
  Machine slow = machine;
  slow.launch_seconds *= kSlower;
  slow.memory_bandwidth /= kSlower;
  slow.vector_flops /= kSlower;
  for (auto& [type, rate] : slow.flops) rate /= kSlower;
  fmt::print(
      "\n{} Xeons, of which one is {:g} times slower; a small GPT, {} updates of {} samples\n\n"
      "{:<32}{:>12}{:>14}{:>12}{:>16}\n",
      kWorkers, kSlower, steps, kWorkers * kSamplesOfAWorker, "", "seconds", "samples/s",
      "last loss", "age of weights");
  Json all;
  const auto add = [&](const std::string& name, const std::vector<Point>& points, double age) {
    Json curve = Json::array();
    for (std::size_t i = 1; i <= points.size(); i += std::max<std::size_t>(1, points.size() / 100))
      curve.push_back({points[i - 1].seconds, points[i - 1].samples, recent_loss(points, i, 512)});
    const Point& last = points.back();
    fmt::print("{:<32}{:>10.3f} s{:>14.0f}{:>12.3f}{:>16.1f}\n", name, last.seconds,
               static_cast<double>(last.samples) / last.seconds,
               recent_loss(points, points.size(), 512), age);
    all[name] = {{"seconds", last.seconds}, {"age", age}, {"curve", curve}};
  };
  add("in step", in_step(machine, slow, {.reducer = bucketed({})}, steps), 0);
  add("local steps, averaged every 32",
      in_step(machine, slow, local_steps(32, kWorkers * kSamplesOfAWorker), steps), 0);
  for (const std::int64_t staleness : {-1, 4, 0}) {
    double age = 0;
    const auto points = asynchronous(machine, slow, staleness, steps, age);
    add(staleness < 0 ? "a server, no bound"
                      : fmt::format("a server, {} steps ahead at most", staleness),
        points, age);
  }
  return all;
}

// --- a bit for a number ------------------------------------------------------------------------

// Seconds of a step of gpt2-124m on so many GPUs, without numbers.
double step_seconds(const Machine& machine, int ranks, bool onebit) {
  TrainConfig config;
  config.model = {.layers = 12,
                  .heads = 12,
                  .width = 768,
                  .context = 1024,
                  .vocabulary = 50257,
                  .dtype = DType::BF16};
  config.gradient_dtype = DType::BF16;
  config.batch = 8 * ranks;
  config.clip = 0;
  const StepParts parts = onebit ? onebit_adam(1) : StepParts{.reducer = bucketed({})};
  double seconds = 0;
  const std::vector<std::uint8_t> zeros(2048);
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    Trainer trainer(rank, config, parts);
    const BatchSampler data(zeros, config.model.context, 1);
    trainer.step(data);  // of the warm-up
    rank.world.barrier();
    const double begin = rank.clock.now();
    trainer.step(data);
    if (rank.world.rank() == 0) seconds = rank.clock.now() - begin;
  });
  return seconds;
}

Json onebit(const std::vector<int>& counts) {
  fmt::print(
      "\ngpt2-124m in BF16 on nodes of 8 A100, 8 samples each: seconds a step\n\n"
      "{:<32}{:>8}{:>12}{:>12}{:>10}\n",
      "between nodes", "GPUs", "Adam", "1-bit Adam", "ratio");
  Json rows = Json::array();
  for (const auto& [name, rate] :
       {std::pair{"8 cards of 25 GB/s", 25e9}, std::pair{"1 card of 12.5 GB/s", 12.5e9},
        std::pair{"1 card of 1.25 GB/s", 1.25e9}}) {
    Machine machine = find_machine("dgx-a100");
    machine.card_link.seconds_per_byte = 1 / rate;
    machine.cards_per_node = rate == 25e9 ? 8 : 1;
    for (const int ranks : counts) {
      const double adam = step_seconds(machine, ranks, false),
                   signs = step_seconds(machine, ranks, true);
      fmt::print("{:<32}{:>8}{:>12.4f}{:>12.4f}{:>10.2f}\n", name, ranks, adam, signs,
                 adam / signs);
      rows.push_back({{"link", name}, {"ranks", ranks}, {"adam", adam}, {"onebit", signs}});
    }
  }
  return rows;
}

// --- two slides --------------------------------------------------------------------------------

// 500 MB of gradients, 300 ms for forward and backward of 256 samples (facts and fit: README.md).
Json slides() {
  constexpr double kCompute = 0.3, kUpdate = 3.5e-3, kJob = 60, kBytes = 500e6;
  constexpr int kGpus = 512;
  fmt::print(
      "\nTwo slides of NVIDIA's: 500 MB of gradients, 300 ms of computing, {} GPUs in a ring\n\n"
      "{:<16}{:>14}{:>12}{:>12}{:>18}\n",
      kGpus, "bus bandwidth", "all-reduce", "efficiency", "published", "largest speed-up");
  Json rows = Json::array();
  struct Slide {
    double bandwidth, efficiency, speed_up;
  };
  for (const Slide& slide : {Slide{11.1e9, .77, 640}, Slide{111e9, .97, 4800}}) {
    Network network;
    network.link = {.latency_seconds = 0, .seconds_per_byte = 1 / slide.bandwidth};
    const double sum =
        simulate(default_plans()[CommOp::AllReduce],
                 call_of(CommOp::AllReduce, kGpus, static_cast<std::int64_t>(kBytes)), kGpus,
                 network)
            .seconds;
    const double efficiency = (kCompute + kUpdate) / (kCompute + kUpdate + sum);
    const double most = (kJob + kUpdate) / (sum + kUpdate);
    fmt::print("{:<16}{:>11.1f} ms{:>12.3f}{:>12.2f}{:>10.0f} of {}\n",
               fmt::format("{:g} GB/s", slide.bandwidth / 1e9), 1e3 * sum, efficiency,
               slide.efficiency, most, slide.speed_up);
    rows.push_back({{"bandwidth", slide.bandwidth},
                    {"all_reduce", sum},
                    {"efficiency", efficiency},
                    {"published_efficiency", slide.efficiency},
                    {"speed_up", most},
                    {"published_speed_up", slide.speed_up}});
  }
  return rows;
}

// --- data --------------------------------------------------------------------------------------

Json loading() {
  fmt::print(
      "\nA step of 1 s, and a loader: seconds that steps 1, 2, 3 ... wait for their batch\n\n");
  Json rows = Json::array();
  const std::vector<double> step(8, 1);
  std::vector<double> uneven(8, .25);
  uneven[4] = 4;
  const auto add = [&](const std::string& name, const std::vector<double>& load,
                       std::size_t prefetch) {
    const std::vector<double> waits = stalls(load, step, prefetch);
    fmt::print("{:<44}{:.2f}\n", name, fmt::join(waits, " "));
    rows.push_back({{"name", name}, {"stalls", waits}});
  };
  add("0.25 s a batch, no queue", std::vector<double>(8, .25), 0);
  add("0.25 s a batch, a queue of 2", std::vector<double>(8, .25), 2);
  add("1.5 s a batch, a queue of 2", std::vector<double>(8, 1.5), 2);
  add("1.5 s a batch, a queue of 8", std::vector<double>(8, 1.5), 8);
  add("one batch of 4 s among 0.25 s, a queue of 2", uneven, 2);
  add("one batch of 4 s among 0.25 s, a queue of 4", uneven, 4);
  return rows;
}

Json run(bool quick) {
  Json json;
  json["timeline"] = who_does_what();
  json["not_waiting"] = not_waiting(quick ? 16 : 400);
  json["onebit"] = onebit(quick ? std::vector<int>{2, 16} : std::vector<int>{2, 4, 8, 16, 32, 64});
  json["slides"] = slides();
  json["loading"] = loading();
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  bool quick = false;
  return aisc::measuring_program(
      argc, argv, "Data parallelism in numbers, in virtual time.",
      [&](aisc::CommandLine& line) {
        line.given("--quick", quick, "fewer steps and ranks: shows that it works");
      },
      [&] { return aisc::run(quick); });
}
