// Every form of parallelism for real: whole training steps of one GPT on one rank and on two ranks
// of a thread each, what they hold and send beside what virtual time says of the same steps, and
// how much faster they are. layouts.cpp has the forms on machines that are not there.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "05_pipeline/pipelined.h"
#include "05_pipeline/simulate.h"
#include "11_gpt_3d/step_of.h"
#include "app/emulated_run.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"
#include "common/train/timeline.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kTolerance = 1e-4;  // of F32 losses and norms, whose sums are in another order
constexpr Purpose kHeld[] = {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer,
                             Purpose::Activations};

struct Form {
  std::string name;
  int ranks = 2, threads = 1;  // of each rank
  int pp = 1, tp = 1, zero = 0;
  std::string schedule = "1f1b";
  int chunks = 1;
  bool at_once = false;  // a rank's samples are one micro-batch; else each sample is one
};

// The first is what the others are compared with.
const std::vector<Form> kForms{
    {.name = "one rank", .ranks = 1},
    {.name = "one rank, batch at once", .ranks = 1, .at_once = true},
    {.name = "one rank, 2 threads", .ranks = 1, .threads = 2},
    {.name = "data"},
    {.name = "data, batch at once", .at_once = true},
    {.name = "data, ZeRO 1", .zero = 1},
    {.name = "data, ZeRO 2", .zero = 2},
    {.name = "data, ZeRO 3", .zero = 3},
    {.name = "stages, GPipe", .pp = 2, .schedule = "gpipe"},
    {.name = "stages, 1F1B", .pp = 2},
    {.name = "stages, interleaved", .pp = 2, .schedule = "interleaved", .chunks = 2},
    {.name = "stages, ZB-H1", .pp = 2, .schedule = "zb-h1"},
    {.name = "parts of layers", .tp = 2}};

// char-10m as bench_gpt has it, or a model that takes milliseconds.
enum class Size { Char10m, Quick };
Options options_of(const Form& form, Size size) {
  Options o;
  o.ranks = form.ranks;
  o.train.model = {.layers = 6, .heads = 6, .width = 384, .context = 256, .vocabulary = 256};
  if (size == Size::Quick)
    o.train.model = {.layers = 4, .heads = 2, .width = 32, .context = 16, .vocabulary = 256};
  o.train.batch = 8;
  o.train.pp = form.pp;
  o.train.tp = form.tp;
  o.train.micro_batches = form.at_once ? 1 : o.train.batch / o.train.data_ranks(form.ranks);
  o.train.steps = 1'000'000;
  o.sharding.zero = form.zero;
  o.pipeline.schedule = form.schedule;
  o.pipeline.chunks = form.chunks;
  return o;
}

// Of all ranks' time, where forward, input and weight gradients take equally long on every stage.
double bubble_of(const Form& form, std::int64_t micro_batches) {
  if (form.pp == 1) return 0;
  const Schedule schedule = find_schedule({.schedule = form.schedule, .chunks = form.chunks},
                                          form.pp, static_cast<int>(micro_batches));
  return bubble_of_total(simulate(schedule, {{1, 1, 1}}));
}

// Of rank 0: the measured steps, of all rounds; the rest is of the last of them.
struct Measured {
  std::vector<double> seconds, exposed, under_way, others;
  Ledger ledger;
  CommStats::Peer sent;
  StepReport report{};
};

// In which other programs have computed on these cores since the system started.
double seconds_of_others() {
  return seconds_of_cores(usable_cores()).value_or(0) - seconds_of_this_process().value_or(0);
}

enum class Step { Counted, Timed };  // a timed one after another, which warms up

// Adds one more step to `m`.
void measure(const Form& form, Size size, TokenView text, Step step, Measured& m) {
  const Options options = options_of(form, size);
  const StepParts parts = step_of(options);
  // Not bound to cores: a rank whose core another program uses as well would hold up the other.
  // Threads sum in place, without messages: what is sent is counted by the plans that virtual time
  // runs.
  const PlanTable plans = step == Step::Counted ? default_plans() : PlanTable{};
  launch({.ranks = form.ranks, .plans = plans, .bind = false}, [&](const Rank& rank) {
    omp_set_num_threads(form.threads);
    Trainer trainer(rank, options.train, parts);
    const BatchSampler data(text, options.train.model.context, options.train.seed);
    if (step == Step::Timed) trainer.step(data);
    rank.world.barrier();  // comm: 0 bytes: all begin together
    rank.device.reset_peaks();
    rank.trace.reset();
    rank.trace.record(true);
    const CommStats::Peer before = rank.world.sent_by_family();
    const double others_before = seconds_of_others(), begin = rank.clock.now();
    const StepReport report = trainer.step(data);
    const double seconds = rank.clock.now() - begin;
    rank.trace.record(false);
    if (rank.world.rank() > 0) return;
    m.seconds.push_back(seconds);
    // Counted in steps of 10 ms, which may be longer than a step.
    const double others = (seconds_of_others() - others_before) / (2 * seconds);
    m.others.push_back(std::clamp(others, 0.0, 1.0));
    const CommunicationTime communication = communication_time(rank.trace.events());
    m.exposed.push_back(communication.exposed);
    m.under_way.push_back(communication.under_way);
    m.ledger = rank.device.ledger();
    const CommStats::Peer after = rank.world.sent_by_family();
    m.sent = {.messages = after.messages - before.messages,
              .wire_bytes = after.wire_bytes - before.wire_bytes};
    m.report = report;
  });
}

Json books(const Ledger& ledger, std::int64_t sent, std::int64_t messages) {
  Json row;
  for (const Purpose purpose : kHeld) row[name_of(purpose)] = ledger[purpose].peak_bytes;
  row["all"] = ledger.total.peak_bytes;
  row["sent"] = sent;
  row["messages"] = messages;
  return row;
}

// What virtual time says of the same step: its bytes and messages, and on a machine at hand its
// seconds.
Json computed(const Form& form, Size size, const std::string& machine) {
  const Options options = options_of(form, size);
  const std::vector<std::uint8_t> zeros(4096);
  const EmulatedStep step = emulate({.config = options.train,
                                     .machine = find_machine(machine),
                                     .ranks = form.ranks,
                                     .meta = true,
                                     .parts = step_of(options)},
                                    zeros);
  Json row = books(step.ledger, step.sent_bytes, step.messages);
  row["seconds"] = step.seconds;
  row["exposed"] = step.exposed_seconds;
  return row;
}

// All forms train the same model on the same samples.
void require_same(const StepReport& found, const StepReport& expected, const std::string& name) {
  const auto far = [](double a, double b) { return std::abs(a - b) > kTolerance * std::abs(b); };
  if (far(found.loss, expected.loss) || far(found.gradient_norm, expected.gradient_norm))
    fail(fmt::format("{}: loss {} and norm {}, of one rank {} and {}", name, found.loss,
                     found.gradient_norm, expected.loss, expected.gradient_norm));
}

// Above it a step was disturbed: other programs took more than this share of two cores.
constexpr double kMostOthers = 0.05;

// The values of the steps that nothing disturbed; of all steps where all were disturbed.
std::vector<double> calm(const std::vector<double>& values, const std::vector<double>& others) {
  std::vector<double> kept;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (others[i] <= kMostOthers) kept.push_back(values[i]);
  return kept.empty() ? values : kept;
}

void print_header(const char* sent, const char* seconds) {
  fmt::print("{:<25}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{}\n", "", "weights", "grads", "optim.",
             "activ.", "all", sent, "messages", seconds);
}

void print_books(const std::string& name, const Json& row) {
  fmt::print("{:<25}", name);
  for (const Purpose purpose : kHeld)
    fmt::print("{:>9.2f}", row[name_of(purpose)].get<double>() / 1e6);
  fmt::print("{:>9.2f}{:>9.2f}{:>9}", row["all"].get<double>() / 1e6,
             row["sent"].get<double>() / 1e6, row["messages"].get<std::int64_t>());
}

void print_measured(const Json& row) {
  print_books(row["form"], row["measured"]);
  fmt::print("{:>9.4f}{:>9.2f}{:>9.4f}{:>8.1f}{:>8.0f}{:>6}\n", row["seconds"].get<double>(),
             row["speedup"].get<double>(), row["exposed"].get<double>(),
             100 * row["bubble"].get<double>(), 100 * row["others"].get<double>(),
             row["calm_steps"].get<int>());
  std::fflush(stdout);
}

void print_computed(const Json& rows, bool has_machine) {
  fmt::print("\ncomputed, in virtual time\n");
  print_header("sent", has_machine ? "   a step  exposed  of measured" : "");
  for (const Json& row : rows) {
    const Json& of = row["computed"];
    print_books(row["form"], of);
    if (has_machine)
      fmt::print("{:>9.4f}{:>9.4f}{:>13.2f}", of["seconds"].get<double>(),
                 of["exposed"].get<double>(),
                 of["seconds"].get<double>() / row["seconds"].get<double>());
    fmt::print("\n");
  }
  // Of two ranks the best, against the faster of the two ways in which one thread computes.
  const Json *best = nullptr, *alone = nullptr;
  for (const Json& row : rows) {
    const Json*& least = row["ranks"] == 2 ? best : alone;
    if (row["ranks"] == 1 && row["threads"] == 2) continue;
    if (!least || row["seconds"] < (*least)["seconds"]) least = &row;
  }
  fmt::print("\nbest of two ranks: {}, {:.2f} times as fast as {}\n",
             (*best)["form"].get<std::string>(),
             (*alone)["seconds"].get<double>() / (*best)["seconds"].get<double>(),
             (*alone)["form"].get<std::string>());
}

Json row_of(const Form& form, Size size, const Measured& m, const Measured& counted,
            const std::string& computes) {
  const auto middle = [&](const std::vector<double>& v) { return median(calm(v, m.others)); };
  return {{"form", form.name},
          {"ranks", form.ranks},
          {"threads", form.threads},
          {"seconds", middle(m.seconds)},
          {"speedup", 1.0},  // relative to the first row
          {"exposed", middle(m.exposed)},
          {"under_way", middle(m.under_way)},
          {"others", middle(m.others)},
          {"calm_steps", std::count_if(m.others.begin(), m.others.end(),
                                       [](double share) { return share <= kMostOthers; })},
          {"steps_seconds", m.seconds},
          {"steps_others", m.others},
          {"bubble", bubble_of(form, options_of(form, size).train.micro_batches)},
          {"measured", books(counted.ledger, counted.sent.wire_bytes, counted.sent.messages)},
          {"computed", computed(form, size, computes)}};
}

struct Flags {
  int rounds = 1;
  bool quick = false;
  std::string machine;
};

void declare(CommandLine& line, Flags& flags) {
  line.number("--rounds", flags.rounds, 1, 1000, "of all forms in turns; medians are shown");
  line.given("--quick", flags.quick, "a model that takes milliseconds, to see that all is there");
  line.text("--machine", flags.machine,
            "also say what a step takes in virtual time on this machine, a file of ./aisc doctor "
            "--profile");
}

Json run(const Flags& flags) {
  const int rounds = flags.rounds;
  const Size size = flags.quick ? Size::Quick : Size::Char10m;
  const std::string computes = flags.machine.empty() ? "limitless" : flags.machine;
  find_machine(computes);  // before what takes long
  omp_set_num_threads(2);
  const PoliteWaits waits(2);
  std::vector<std::uint8_t> text(1 << 20);
  std::mt19937 random(1);
  for (auto& byte : text) byte = static_cast<std::uint8_t>(random());

  fmt::print(
      "MB at most on rank 0, MB and messages that it sends in a step; seconds of a step; how many\n"
      "times as fast as one rank of one thread; seconds in which rank 0 did nothing but\n"
      "communicate; the schedule's bubble in % of all ranks' time; % of two cores' time that "
      "other\n"
      "programs took. Times are medians of calm steps, in which that was at most {:.0f} %, of {} "
      "in "
      "all;\nwhere there was no calm one, of the disturbed\n\nmeasured\n",
      100 * kMostOthers, rounds);
  print_header("sent", "   a step  as fast  exposed  bubble  others calm");
  std::fflush(stdout);
  std::vector<Measured> all(kForms.size());
  Json rows = Json::array();
  for (int round = 1; round <= rounds; ++round)
    for (std::size_t i = 0; i < kForms.size(); ++i) {
      measure(kForms[i], size, text, Step::Timed, all[i]);
      require_same(all[i].report, all[0].report, kForms[i].name);
      if (round < rounds) continue;
      Measured counted = all[i];
      if (kForms[i].ranks > 1) measure(kForms[i], size, text, Step::Counted, counted);
      rows.push_back(row_of(kForms[i], size, all[i], counted, computes));
      rows.back()["speedup"] =
          rows[0]["seconds"].get<double>() / rows.back()["seconds"].get<double>();
      print_measured(rows.back());
    }
  print_computed(rows, !flags.machine.empty());
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::measuring_program(
      argc, argv,
      "Training steps of char-10m (L6 C384 H6 V256 B8 T256) in F32 on one rank and on two, in "
      "every form of parallelism.",
      [&](aisc::CommandLine& line) { aisc::declare(line, flags); },
      [&] { return aisc::run(flags); });
}
