// Draws a schedule: one of the literature by its name, or one's own that stands in a file, a line a
// rank: "F0 F1 B0 B1". Says whether it can be executed, how long its ranks wait, and how near it
// is to the best that is possible.
//
// --json writes {"schedule": "1f1b", "seconds": 33, "in_flight": [4, 3, 2, 1],
// "in_flight_over_time":
// [[[0, 1], [1, 2], ...], ...], "timeline": [{"name": "rank 0", "events": [["forward", "F0", 0, 1],
// ...]}, ...]}: by rank the most micro-batches in flight, and the [second, number] from which on
// there are so many; rows as timeline_json() has them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/check.h"
#include "05_pipeline/picture.h"
#include "05_pipeline/pipelined.h"
#include "05_pipeline/simulate.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

struct Flags {
  std::string schedule, svg, json;
  int ranks = 4, micro_batches = 8, chunks = 1, columns = 108, at_most = 0;
  double forward = 1, backward = 1, weight_gradient = 1;
};

// "F3", "B3.1", "W3", "U".
Action parse_action(const std::string& word, const std::string& where) {
  static const std::string kLetters = "FBWU";
  static constexpr ActionKind kKinds[] = {ActionKind::Forward, ActionKind::Backward,
                                          ActionKind::WeightGradient, ActionKind::Update};
  const auto expected = [&]() {
    fail(
        fmt::format("{}: '{}', expected F, B or W and a micro-batch, as in F3 or, of chunk 1, "
                    "F3.1; or U",
                    where, word));
  };
  const std::size_t kind = kLetters.find(word[0]);
  if (kind == std::string::npos) expected();
  Action action{kKinds[kind]};
  const char *at = word.data() + 1, *end = word.data() + word.size();
  const auto number = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0) expected();
    at = next;
  };
  if (action.kind != ActionKind::Update || at != end) number(action.micro_batch);
  if (at != end && *at == '.') {
    ++at;
    number(action.chunk);
  }
  if (at != end) expected();
  return action;
}

// A line a rank; empty lines and those that begin with # are none.
Schedule read_schedule(const std::string& path) {
  Schedule s{.name = std::filesystem::path(path).stem().string(), .micro_batches = 0};
  std::istringstream lines(read_file(path));
  int chunks = 1, number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos || line[0] == '#') continue;
    std::istringstream words(line);
    std::vector<Action>& list = s.actions.emplace_back();
    for (std::string word; words >> word;) {
      const Action a = list.emplace_back(parse_action(word, fmt::format("{}:{}", path, number)));
      if (a.kind != ActionKind::Update)
        s.micro_batches = std::max(s.micro_batches, a.micro_batch + 1);
      s.splits_backward |= a.kind == ActionKind::WeightGradient;
      chunks = std::max(chunks, a.chunk + 1);
    }
  }
  if (s.actions.empty() || s.micro_batches == 0)
    fail(path + ": no rank has anything to do, expected a line a rank such as: F0 F1 B0 B1");
  s.stage_of = round_robin(static_cast<int>(s.actions.size()), chunks);
  return s;
}

bool is_file(const std::string& name) {
  return name.find('/') != std::string::npos || std::filesystem::is_regular_file(name);
}

// Less than any schedule takes that ends with all gradients: the rank that begins last has to wait
// for d = p - 1 forwards of thin stages, and then has all of its work to do; and its last gradient
// of an input still has to pass d stages, beside which weight gradients may be left to do only
// where they are actions of their own.
double least_seconds(const Schedule& s, const ActionCosts& c) {
  const double d = (s.ranks() - 1.0) / s.chunks(), m = s.micro_batches;
  const double filled = d * c.forward, gradients = c.backward + c.weight_gradient;
  if (!s.splits_backward) return filled + m * (c.forward + gradients) + d * gradients;
  return filled + std::max(m * (c.forward + gradients),
                           m * (c.forward + c.backward) + d * c.backward + c.weight_gradient);
}

// By rank: {second, micro-batches in flight from then on}. Each is in flight from the begin of its
// forward to the end of what most_in_flight() calls `until`.
std::vector<std::vector<std::pair<double, int>>> in_flight_over_time(const Simulation& simulation,
                                                                     ActionKind until) {
  std::vector<std::vector<std::pair<double, int>>> all;
  for (const RankTimes& rank : simulation.ranks) {
    std::map<double, int> changes{{0, 0}};
    for (const TimedAction& a : rank.actions) {
      if (a.action.kind == ActionKind::Forward) ++changes[a.begin_seconds];
      if (a.action.kind == until) --changes[a.end_seconds];
    }
    int count = 0;
    auto& curve = all.emplace_back();
    for (const auto& [seconds, change] : changes) curve.emplace_back(seconds, count += change);
  }
  return all;
}

int draw(const Flags& flags) {
  const Schedule schedule =
      is_file(flags.schedule) ? read_schedule(flags.schedule)
                              : find_schedule({.schedule = flags.schedule, .chunks = flags.chunks},
                                              flags.ranks, flags.micro_batches);
  const std::vector<std::string> found = problems(schedule);
  for (const std::string& problem : found) fmt::print("{}\n", problem);
  if (!found.empty()) return 1;
  const double v = schedule.chunks();
  const ActionCosts whole{.forward = flags.forward,
                          .backward = flags.backward,
                          .weight_gradient = flags.weight_gradient};
  const ActionCosts costs{.forward = whole.forward / v,
                          .backward = whole.backward / v,
                          .weight_gradient = whole.weight_gradient / v};
  const Simulation simulation = simulate(schedule, {costs});
  const ActionKind until =
      schedule.splits_backward ? ActionKind::WeightGradient : ActionKind::Backward;
  const std::vector<int> kept = most_in_flight(schedule, until);
  fmt::print("{}: {} ranks, {} micro-batches\n{}in flight at most: {}\n", schedule.name,
             schedule.ranks(), schedule.micro_batches, picture_text(simulation, flags.columns),
             fmt::join(kept, " "));
  if (flags.at_most > 0) {
    const int most = *std::max_element(kept.begin(), kept.end());
    const double least = least_seconds(schedule, whole);
    if (most > flags.at_most)
      fmt::print("{} are in flight on rank {}, and {} may be\n", most,
                 std::max_element(kept.begin(), kept.end()) - kept.begin(), flags.at_most);
    fmt::print("score {:.3f}: no schedule takes less than {:g} s\n",
               most > flags.at_most ? 0 : least / simulation.total_seconds, least);
  }
  const std::vector<TimelineRow> rows = timeline_of(simulation);
  if (!flags.svg.empty()) write_file(flags.svg, timeline_svg(rows, schedule.name));
  if (!flags.json.empty())
    write_file(flags.json, nlohmann::ordered_json{{"schedule", schedule.name},
                                                  {"seconds", simulation.total_seconds},
                                                  {"in_flight", kept},
                                                  {"in_flight_over_time",
                                                   in_flight_over_time(simulation, until)},
                                                  {"timeline", timeline_json(rows)}}
                                   .dump(2) +
                               "\n");
  return 0;
}

int run(int argc, char** argv) {
  Flags flags;
  CommandLine line("Draws a schedule of a pipeline, and says whether it can be executed.");
  line.required("schedule", flags.schedule,
                "naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, pipedream or 2bw; or a file "
                "with a line a rank: F0 F1 B0 B1");
  line.number("--ranks", flags.ranks, 1, 64, "of the pipeline; a file has its own");
  line.number("--micro-batches", flags.micro_batches, 1, 1024, "of a step; a file has its own");
  line.number("--chunks", flags.chunks, 1, 64, "stages a rank, of interleaved and zb-v");
  line.number("--forward", flags.forward, 0, 1e6, "seconds of a micro-batch on a rank");
  line.number("--backward", flags.backward, 0, 1e6, "seconds of its input's gradient");
  line.number("--weight-gradient", flags.weight_gradient, 0, 1e6,
              "seconds of its weights' gradient; without W in a list both are its backward");
  line.number("--at-most", flags.at_most, 0, 1024,
              "micro-batches that a rank may have in flight: gives a score against the bound");
  line.number("--columns", flags.columns, 10, 1000, "of the picture");
  line.text("--svg", flags.svg, "also write a picture to this file");
  line.text("--json", flags.json, "also write the timeline to this file");
  if (const auto status = line.parse(argc, argv)) return *status;
  return draw(flags);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("draw", [&] { return aisc::run(argc, argv); });
}
