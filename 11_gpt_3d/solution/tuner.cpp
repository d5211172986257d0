#include "11_gpt_3d/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "10_model_compression/more/search.h"
#include "11_gpt_3d/step_of.h"
#include "11_gpt_3d/train_sizes.h"
#include "app/emulated_run.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr std::size_t kMostRuns = 100'000;

std::vector<std::string> divisors(std::int64_t of, std::int64_t also) {
  std::vector<std::string> found;
  for (std::int64_t d = 1; d <= of; ++d)
    if (of % d == 0 && also % d == 0) found.push_back(std::to_string(d));
  return found;
}

// Of flags of which the last counts where one is given twice. Blank samples need a vocabulary.
ReadOptions read(const std::vector<std::string>& flags, const std::vector<std::string>& more) {
  std::vector<const char*> words{"tune"};
  for (const auto* some : {&flags, &more})
    for (const std::string& flag : *some) words.push_back(flag.c_str());
  ReadOptions found =
      read_options(static_cast<int>(words.size()), words.data(), "{}", gpt_options());
  if (!found.options) return found;
  std::int64_t& vocabulary = found.options->train.model.vocabulary;
  if (vocabulary == 0) vocabulary = found.options->program.meta_vocabulary;
  return found;
}

// Without "train_gpt: " and what follows the first line.
std::string reason(const std::string& error) {
  const std::string line = error.substr(0, error.find('\n'));
  const std::string before = gpt_options().program.name + ": ";
  return line.starts_with(before) ? line.substr(before.size()) : line;
}

std::vector<std::vector<std::string>> all_of(const TuningSpace& space) {
  std::vector<std::vector<std::string>> all{{}};
  for (const TunedFlag& flag : space) {
    if (all.size() * flag.values.size() > kMostRuns)
      fail(fmt::format("a space of more than {} runs", kMostRuns));
    std::vector<std::vector<std::string>> more;
    for (const auto& flags : all)
      for (const std::string& value : flag.values) {
        more.push_back(flags);
        more.back().push_back("--" + flag.name + "=" + value);
      }
    all = std::move(more);
  }
  return all;
}

// Successive halving among the first `count`, whose steps are a budget.
void measure(const TunerOptions& o, std::vector<TunedRun>& runs, std::int64_t count) {
  const auto seconds_of = [&](std::int64_t i, std::int64_t steps) {
    const ReadOptions options = read(o.flags, runs[static_cast<std::size_t>(i)].flags);
    return o.measure(*options.options, static_cast<int>(steps));
  };
  if (count == 0) return;
  const SearchResult found =
      successive_halving(count, std::max<std::int64_t>(o.measured_steps, 4) * count, 2, seconds_of);
  for (const Trial& trial : found.trials) {
    TunedRun& run = runs[static_cast<std::size_t>(trial.candidate)];
    run.measured = trial.loss;  // of the last round that it was in
    if (!trial.failure.empty()) run.dropped = trial.failure;
  }
}

}  // namespace

TuningSpace parse_space(const std::string& text) {
  TuningSpace space;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    TunedFlag flag{word.substr(0, at), {}};
    std::istringstream values(at == std::string::npos ? "" : word.substr(at + 1));
    for (std::string value; std::getline(values, value, ',');) flag.values.push_back(value);
    if (flag.name.empty() || flag.values.empty())
      fail(fmt::format("--space: found \"{}\", expected FLAG=VALUE,VALUE", word));
    for (const TunedFlag& other : space)
      if (other.name == flag.name) fail(fmt::format("--space: {} stands twice", flag.name));
    space.push_back(std::move(flag));
  }
  if (space.empty()) fail("--space: found nothing, expected FLAG=VALUE,VALUE");
  return space;
}

TuningSpace usual_space(const Options& o) {
  const GptConfig& model = o.train.model;
  TuningSpace space;
  const auto add = [&](const std::string& name, std::vector<std::string> values) {
    if (values.size() > 1 && !o.given.contains(name)) space.push_back({name, std::move(values)});
  };
  add("tp", divisors(o.ranks, model.heads));
  add("pp", divisors(o.ranks, model.layers));
  std::vector<std::string> parts;
  for (std::int64_t p = 1; p <= o.train.batch && p <= 64; p *= 2)
    parts.push_back(std::to_string(p));
  add("micro-batches", parts);
  if (o.ranks > 1) add("zero", {"0", "1", "2", "3"});
  add("recompute", {"none", "block"});
  return space;
}

PredictedStep predicted_step(const Options& o, const std::string& machine, int turns) {
  Machine roomy = find_machine(machine);
  roomy.capacity = 0;
  const auto run = [&](std::int64_t micro_batches) {
    Options some = o;
    some.train.batch = o.train.batch / o.train.micro_batches * micro_batches;
    some.train.micro_batches = micro_batches;
    const EmulatedStep step = emulate({.config = some.train,
                                       .machine = roomy,
                                       .ranks = some.ranks,
                                       .meta = true,
                                       .steps = 1,
                                       .parts = step_of(some),
                                       .plans = plans_of(some),
                                       .alike = one_runs_for_all(some),
                                       .most_run = 1},
                                      *blank_samples(some));
    return PredictedStep{step.seconds, step.exposed_seconds, static_cast<double>(step.most_bytes)};
  };
  const std::int64_t all = o.train.micro_batches, turn = o.train.pp, few = turns * turn;
  const bool divides = o.train.batch % all == 0;
  if (turns < 2 || all <= few || all % turn != 0 || !divides) return run(all);
  PredictedStep step = run(few);
  const PredictedStep fewer = run(few - turn);
  const double more = static_cast<double>(all - few) / static_cast<double>(turn);
  step.seconds += more * (step.seconds - fewer.seconds);
  step.exposed += more * (step.exposed - fewer.exposed);
  return step;
}

std::vector<TunedRun> tune(const TunerOptions& o) {
  const double capacity = find_machine(o.machine).capacity;  // says at once if there is none
  const double limit = o.limit > 0 ? o.limit : capacity;
  std::vector<TunedRun> fit, dropped;
  for (std::vector<std::string>& flags : all_of(o.space)) {
    TunedRun run{std::move(flags)};
    const ReadOptions options = read(o.flags, run.flags);
    try {
      if (!options.options) fail(reason(options.error));
      const PredictedStep step = predicted_step(*options.options, o.machine);
      run.seconds = step.seconds;
      run.bytes = step.bytes;
      if (limit > 0 && run.bytes > limit)
        fail(fmt::format("a rank needs {:.4g} GB, {:.4g} are there", run.bytes / 1e9, limit / 1e9));
    } catch (const Error& e) {
      run.dropped = e.what();
    }
    (run.dropped.empty() ? fit : dropped).push_back(std::move(run));
  }
  const auto quickest = [](double TunedRun::*seconds) {
    return [seconds](const TunedRun& a, const TunedRun& b) { return a.*seconds < b.*seconds; };
  };
  std::stable_sort(fit.begin(), fit.end(), quickest(&TunedRun::seconds));
  if (o.measure) {
    auto best = fit.begin() + std::min<std::int64_t>(o.best, std::ssize(fit));
    measure(o, fit, best - fit.begin());
    std::stable_sort(fit.begin(), best, quickest(&TunedRun::measured));
    // What failed for real is none.
    const auto runs = [](const TunedRun& run) { return run.dropped.empty(); };
    best = std::stable_partition(fit.begin(), fit.end(), runs);
    dropped.insert(dropped.begin(), best, fit.end());
    fit.erase(best, fit.end());
  }
  fit.insert(fit.end(), dropped.begin(), dropped.end());
  return fit;
}

}  // namespace aisc
