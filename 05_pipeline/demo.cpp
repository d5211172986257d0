// What this module is about, in numbers: schedules drawn, their bubbles and what they keep, by the
// formulas and by ranks that run them in virtual time (docs/virtual_time.md).
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/more/bidirectional.h"
#include "05_pipeline/picture.h"
#include "05_pipeline/schedules.h"
#include "05_pipeline/timed_run.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// A rank's forward, input and weight gradient of a micro-batch: a second each, for all chunks of a
// copy of the model.
ActionCosts seconds_of(const Schedule& s) {
  const double each = static_cast<double>(s.copies) / s.chunks();
  return {.forward = each, .backward = each, .weight_gradient = each};
}

timed::Outcome run(const Schedule& schedule, timed::Options options = {}) {
  options.costs = seconds_of(schedule);
  return timed::run(schedule, options);
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
    if (s.copies == 1) seconds["run"] = run(s).total_seconds;
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
  const timed::Outcome found = run(s);
  const double d = s.ranks() - 1, vm = s.chunks() * s.micro_batches;
  const double ideal = found.bubble_of_ideal(), total = found.bubble_of_total();
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
    fmt::print("{} {:.0f}", d == 2 ? "" : ",", 100 * run(one_f_one_b(d, 4 * d)).bubble_of_total());
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
    const timed::Outcome found = run(s);
    fmt::print("{:<12}", s.name);
    Json row{{"schedule", s.name}};
    for (int r = 0; r < p; ++r) {
      const double kept = found.ranks[index(r)].units / s.chunks();
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
    const double late = run(s, {.again = Again::OnArrival}).total_seconds;
    const double early = run(s, {.again = Again::Early}).total_seconds;
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
    const timed::Outcome found = run(one_f_one_b(kRanks, kMicroBatches),
                                     {.again = Again::Early, .keep_units = double(kept)});
    std::vector<double> units;
    for (const timed::RankRun& rank : found.ranks) units.push_back(rank.units);
    fmt::print("room for {}: {} s, kept {}\n", kept, found.total_seconds, fmt::join(units, " "));
    rows.push_back({{"room", kept}, {"seconds", found.total_seconds}, {"units", units}});
  }
  return rows;
}

// --- versions ----------------------------------------------------------------------------------

Json versions() {
  fmt::print("\nVersions of its weights on each rank, by the ledger, without a flush\n\n");
  Json rows = Json::array();
  const auto add = [&](const std::string& name, const Schedule& s, Weights weights) {
    std::vector<double> held;
    for (const timed::RankRun& rank : run(s, {.weights = weights}).ranks)
      held.push_back(rank.weights_held);
    fmt::print("{:<36}{}\n", name, fmt::join(held, "  "));
    rows.push_back({{"weights", name}, {"versions", held}});
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
