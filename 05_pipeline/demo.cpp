// What this module is about, in numbers: schedules drawn, their bubbles and what they keep, by the
// formulas and by ranks that run them in virtual time (docs/virtual_time.md).
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/more/bidirectional.h"
#include "05_pipeline/picture.h"
#include "05_pipeline/pipeline_rank.h"
#include "05_pipeline/schedules.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kWidth = 16, kWeights = 64;
constexpr double kUnitBytes = 4 * kWidth;  // what a stage keeps of a micro-batch, F32

// A rank's forward, input and weight gradient of a micro-batch: a second each, for all chunks of a
// copy of the model.
ActionCosts seconds_of(const Schedule& s) {
  const double each = static_cast<double>(s.copies) / s.chunks();
  return {.forward = each, .backward = each, .weight_gradient = each};
}

// --- ranks that run a schedule -----------------------------------------------------------------

// Takes known seconds, and keeps what it makes.
class TimedStage final : public Layer {
 public:
  // work(seconds) lets them pass.
  TimedStage(const Rank& rank, const std::string& name, const ActionCosts& costs,
             std::function<void(double seconds)> work)
      : Layer(rank, name),
        costs_(costs),
        work_(std::move(work)),
        weight_(whole_parameter(name + ".weight", {kWeights}, Init::constant(0), true)) {}

  Tensor forward(Tensor /*x*/, Saved& saved, const Pass& /*pass*/) const override {
    work_(costs_.forward);
    Tensor y = Tensor::zeros({1, kWidth}, DType::F32, rank_.device);  // (1, kWidth)
    saved.push(y.share());
    return y;
  }
  Tensor backward(Tensor /*dy*/, Saved& saved, const Pass& pass) override {
    work_(costs_.backward);
    const auto weight_gradient = [this] { work_(costs_.weight_gradient); };
    pass.deferred ? pass.deferred->push(weight_gradient) : weight_gradient();
    return saved.pop();  // (1, kWidth)
  }
  std::vector<Parameter*> parameters() override { return {&weight_}; }

 private:
  const ActionCosts costs_;
  const std::function<void(double seconds)> work_;
  Parameter weight_;
};

class NoLoss final : public Loss {
 public:
  double forward(Tensor x, const Tensor& /*targets*/, Saved& saved) const override {
    saved.push(std::move(x));
    return 0;
  }
  Tensor backward(Saved& saved, double /*factor*/) const override { return saved.pop(); }
};

struct Measured {
  double seconds = 0, busy = 0;  // the longest rank's; of all ranks
  // By rank, the most that it held: activations in kUnitBytes, copies of its weights.
  std::vector<double> units, versions;
  double idle() const { return static_cast<double>(units.size()) * seconds - busy; }
};

struct RunOptions {
  Again again = Again::Never;
  int keep_units = 0;
  Weights weights = Weights::Stashed;
};

Measured run(const Schedule& schedule, const RunOptions& options = {}) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks());
  Measured all{.units = std::vector<double>(ranks), .versions = std::vector<double>(ranks)};
  std::vector<double> ends(ranks), busy(ranks);
  launch({.ranks = schedule.ranks(), .network = Network{}}, [&](const Rank& rank) {
    const auto self = static_cast<std::size_t>(rank.world.rank());
    const auto work = [&](double seconds) {
      rank.clock.advance(seconds);
      busy[self] += seconds;
    };
    Model model;
    for (std::size_t c = 0; c < static_cast<std::size_t>(schedule.chunks()); ++c) {
      model.layers.push_back(std::make_unique<TimedStage>(rank, fmt::format("stage{}", c),
                                                          seconds_of(schedule), work));
      model.stages.push_back({c, c + 1});
      if (schedule.stage_of[self][c] + 1 == schedule.stages())
        model.loss = std::make_unique<NoLoss>();
    }
    const ParameterStore store(rank.device, make_units(model), {.gradients = false});
    const auto boundary = [](int, const Shape&) { return Shape{1, kWidth}; };
    PipelineRank pipeline(rank, rank.world, model, schedule,
                          {.input_shape = boundary,
                           .again = options.again,
                           .keep_bytes = static_cast<std::int64_t>(options.keep_units * kUnitBytes),
                           .weights = options.weights});
    const ReadMicroBatch read = [&](std::int64_t m) {
      const auto ids = [&] { return Tensor::zeros({1, 1}, DType::I32, rank.device); };
      return MicroBatch{{ids(), ids()}, {.micro_batch = static_cast<int>(m)}};
    };
    std::function<void()> update;
    if (pipeline.updates_on_its_way()) update = [] {};
    pipeline.run(schedule.micro_batches, read, 1, {}, update);
    ends[self] = rank.clock.now();
    all.units[self] = static_cast<double>(pipeline.most_saved_bytes()) / kUnitBytes;
    const auto weight_bytes = rank.device.ledger()[Purpose::Parameters].peak_bytes;
    all.versions[self] =
        static_cast<double>(weight_bytes) / static_cast<double>(store.values().bytes());
  });
  all.seconds = *std::max_element(ends.begin(), ends.end());
  for (const double seconds : busy) all.busy += seconds;
  return all;
}

// --- pictures ----------------------------------------------------------------------------------

constexpr int kRanks = 4, kMicroBatches = 8;
// Updates take no time, so that PipeDream's picture is 1F1B's.
Json pictures() {
  const int p = kRanks, m = kMicroBatches;
  fmt::print("{} ranks, {} micro-batches; each forward, input and weight gradient takes 1 s\n", p,
             m);
  Json rows = Json::array();
  for (const Schedule& s :
       {naive(p, m), gpipe(p, m), one_f_one_b(p, m), interleaved(p, 2, m), zb_h1(p, m), zb_h2(p, m),
        zb_v(p, m), dual_pipe(p, m), dual_pipe_v(p, m), pipedream(p, m)}) {
    const Simulation simulation = simulate(s, {seconds_of(s)});
    Json seconds{{"simulated", simulation.total_seconds}};
    if (s.copies == 1) seconds["run"] = run(s).seconds;
    fmt::print("\n{}: {}\n{}", s.name,
               s.copies == 1
                   ? fmt::format("{} s by ranks that run it", seconds["run"].get<double>())
                   : "simulated alone, since its model is there twice",
               picture_text(simulation, 108));
    rows.push_back({{"schedule", s.name},
                    {"seconds", seconds},
                    {"of_ideal", bubble_of_ideal(simulation)},
                    {"of_total", bubble_of_total(simulation)},
                    {"timeline", timeline_json(timeline_of(simulation))}});
  }
  return rows;
}

// --- bubbles -----------------------------------------------------------------------------------

// Formula and run, of v chunks a rank.
Json bubble(const Schedule& s) {
  const Measured found = run(s);
  const double d = s.ranks() - 1, vm = s.chunks() * s.micro_batches;
  const double ideal = found.idle() / found.busy;
  const double total = found.idle() / (found.idle() + found.busy);
  fmt::print("{:>10.4f}{:>8.4f}{:>10.4f}{:>8.4f}", d / vm, ideal, d / (vm + d), total);
  return {{"schedule", s.name},
          {"p", s.ranks()},
          {"m", s.micro_batches},
          {"of_ideal", {{"formula", d / vm}, {"run", ideal}}},
          {"of_total", {{"formula", d / (vm + d)}, {"run", total}}}};
}

Json bubbles() {
  fmt::print(
      "\nThe bubble, by formula and as run: of the ideal time, (p-1)/(v m), and of the total, "
      "(p-1)/(v m + p-1)\n\n{:>6}{:>36}{:>36}{:>36}\n{:>2}{:>4}",
      "", "gpipe", "1f1b", "interleaved, v = 2", "p", "m");
  for (int i = 0; i < 3; ++i) fmt::print("{:>18}{:>18}", "of the ideal", "of the total");
  Json rows = Json::array();
  for (const int p : {2, 4, 8})
    for (int m = p; m <= 64; m *= 2) {
      fmt::print("\n{:>2}{:>4}", p, m);
      for (const Schedule& s : {gpipe(p, m), one_f_one_b(p, m), interleaved(p, 2, m)})
        rows.push_back(bubble(s));
    }
  fmt::print("\n\n\"Almost negligible for m > 4d\": at m = 4d it is");
  for (const int d : {2, 4, 8, 16}) {
    const Measured found = run(one_f_one_b(d, 4 * d));
    fmt::print("{} {:.0f}", d == 2 ? "" : ",", 100 * found.idle() / (d * found.seconds));
  }
  fmt::print(" % of the total for d = 2, 4, 8, 16; the limit is 20 %\n");
  return rows;
}

// --- bytes kept --------------------------------------------------------------------------------

Json in_flight() {
  constexpr int p = kRanks, m = kMicroBatches;
  const auto all_of = [](int units) { return [units](int) { return units; }; };
  const std::vector<std::pair<Schedule, std::function<int(int rank)>>> cases{
      {naive(p, m), all_of(1)},
      {gpipe(p, m), all_of(m)},
      {one_f_one_b(p, m), [](int r) { return p - r; }},
      {interleaved(p, 2, m), [](int r) { return 2 * (p - r - 1) + p + 1; }},
      {zb_h1(p, m), all_of(p)},
      {zb_h2(p, m), all_of(2 * p - 1)},
      {zb_v(p, m), all_of(2 * p)},
      {dual_pipe_v(p, m), all_of(2 * p + 1)},
      {pipedream(p, m), [](int r) { return p - r; }}};
  fmt::print("\nThe most a rank keeps, in a micro-batch's activations of its layers (formula)\n\n");
  Json rows = Json::array();
  for (const auto& [s, units] : cases) {
    const Measured found = run(s);
    fmt::print("{:<12}", s.name);
    Json row{{"schedule", s.name}};
    for (int r = 0; r < p; ++r) {
      const double kept = found.units[static_cast<std::size_t>(r)] / s.chunks();
      const double formula = static_cast<double>(units(r)) / s.chunks();
      fmt::print("{:>8.4g}{:>7}", kept, fmt::format("({:.4g})", formula));
      row["units"].push_back(kept);
      row["formula"].push_back(formula);
    }
    fmt::print("\n");
    rows.push_back(row);
  }
  return rows;
}

// --- recomputation -----------------------------------------------------------------------------

Json recomputation() {
  fmt::print(
      "\nForwards run again: when the gradient arrives, and early, while the rank waits for it; "
      "seconds\n\n{:<8}{:>3}{:>4}{:>12}{:>8}{:>10}{:>12}\n",
      "", "p", "m", "on arrival", "early", "shorter", "(p-1) tf");
  Json rows = Json::array();
  const auto add = [&](const Schedule& s) {
    const double late = run(s, {.again = Again::OnArrival}).seconds;
    const double early = run(s, {.again = Again::Early}).seconds;
    fmt::print("{:<8}{:>3}{:>4}{:>12}{:>8}{:>10}{:>12}\n", s.name, s.ranks(), s.micro_batches, late,
               early, late - early, s.ranks() - 1);
    rows.push_back({{"schedule", s.name}, {"ranks", s.ranks()}, {"seconds", {late, early}}});
  };
  for (const int p : {2, 4, 8})
    for (const auto& make : {gpipe, one_f_one_b, zb_h1, zb_h2}) add(make(p, 2 * p));
  fmt::print(
      "zb-h2's weight gradients leave no wait to fill.\n\n"
      "1f1b, early, with room for some micro-batches that keep everything\n\n");
  for (int kept = 0; kept <= kRanks; ++kept) {
    const Measured found = run(one_f_one_b(kRanks, kMicroBatches), {Again::Early, kept});
    fmt::print("room for {}: {} s, kept {}\n", kept, found.seconds, fmt::join(found.units, " "));
    rows.push_back({{"room", kept}, {"seconds", found.seconds}, {"units", found.units}});
  }
  return rows;
}

// --- versions ----------------------------------------------------------------------------------

Json versions() {
  fmt::print("\nVersions of its weights on each rank, by the ledger, without a flush\n\n");
  Json rows = Json::array();
  const auto add = [&](const std::string& name, const Schedule& s, Weights weights) {
    const Measured found = run(s, {.weights = weights});
    fmt::print("{:<36}{}\n", name, fmt::join(found.versions, "  "));
    rows.push_back({{"weights", name}, {"versions", found.versions}});
  };
  add("pipedream, the newest: wrong", pipedream(kRanks, 16), Weights::Newest);
  add("pipedream, stashed: p - r", pipedream(kRanks, 16), Weights::Stashed);
  add("pipedream, vertical sync: p", pipedream(kRanks, 16), Weights::VerticalSync);
  add("2bw: 2", two_bw(kRanks, 8, 3), Weights::TwoBuffered);
  return rows;
}

Json run_all() {
  return {{"schedules", pictures()},
          {"bubbles", bubbles()},
          {"in_flight", in_flight()},
          {"recomputation", recomputation()},
          {"versions", versions()}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Pipelines in numbers, in virtual time.", [](aisc::CommandLine&) {},
      aisc::run_all);
}
