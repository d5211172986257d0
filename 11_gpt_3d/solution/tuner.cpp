#include "11_gpt_3d/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "10_model_compression/more/search.h"
#include "11_gpt_3d/step_of.h"
#include "common/core/error.h"
#include "common/model/machine.h"

namespace aisc {
namespace {

constexpr std::size_t kMostRuns = 100'000;
constexpr std::size_t kMoved = 4;  // runs that moves begin with

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

std::vector<std::string> words_of(const TunedFlag& flag, const std::string& value) {
  std::istringstream words("--" + flag.name + "=" + value);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string flag_name(const std::string& word) { return word.substr(0, word.find('=')); }

// The flags without this one, and those that stand behind one of its values.
std::vector<std::string> without(std::vector<std::string> flags, const TunedFlag& flag) {
  std::set<std::string> names;
  for (const std::string& value : flag.values)
    for (const std::string& word : words_of(flag, value)) names.insert(flag_name(word));
  std::erase_if(flags, [&](const std::string& word) { return names.contains(flag_name(word)); });
  return flags;
}

// The flags with this value in the place of another one that they may have.
std::vector<std::string> with(std::vector<std::string> flags, const TunedFlag& flag,
                              const std::string& value) {
  flags = without(std::move(flags), flag);
  for (std::string& word : words_of(flag, value)) flags.push_back(std::move(word));
  return flags;
}

std::vector<std::vector<std::string>> all_of(const TuningSpace& space) {
  std::vector<std::vector<std::string>> all{{}};
  for (const TunedFlag& flag : space) {
    if (all.size() * flag.values.size() > kMostRuns)
      fail(fmt::format("a space of more than {} runs", kMostRuns));
    std::vector<std::vector<std::string>> more;
    for (const auto& flags : all)
      for (const std::string& value : flag.values) more.push_back(with(flags, flag, value));
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

// What was tried: in virtual time, without numbers.
class Tried {
 public:
  Tried(const TunerOptions& options, double limit) : options_(options), limit_(limit) {}

  void run(std::vector<std::string> flags) {
    if (!seen_.insert({flags.begin(), flags.end()}).second) return;
    if (seen_.size() > kMostRuns) fail(fmt::format("a space of more than {} runs", kMostRuns));
    TunedRun run{std::move(flags)};
    const ReadOptions options = read(options_.flags, run.flags);
    try {
      if (!options.options) fail(reason(options.error));
      const PredictedStep step = predicted_step(*options.options, options_.machine);
      run.seconds = step.seconds;
      run.bytes = step.bytes;
      if (limit_ > 0 && run.bytes > limit_)
        fail(
            fmt::format("a rank needs {:.4g} GB, {:.4g} are there", run.bytes / 1e9, limit_ / 1e9));
    } catch (const Error& e) {
      run.dropped = e.what();
    }
    (run.dropped.empty() ? fit : dropped).push_back(std::move(run));
    if (options_.tell) options_.tell(seen_.size());
  }

  // The best `count`: the quickest that fit; where none does, those that need the least.
  std::vector<TunedRun> best(std::size_t count) const {
    std::vector<TunedRun> all = fit;
    if (all.empty())
      for (const TunedRun& run : dropped)
        if (run.bytes > 0) all.push_back(run);
    std::stable_sort(all.begin(), all.end(), [&](const TunedRun& a, const TunedRun& b) {
      return fit.empty() ? a.bytes < b.bytes : a.seconds < b.seconds;
    });
    if (all.size() > count) all.erase(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
    return all;
  }

  std::vector<TunedRun> fit, dropped;

 private:
  const TunerOptions& options_;
  const double limit_;
  std::set<std::set<std::string>> seen_;
};

// Changes one flag after the other of the best few, until these stay the same.
void move(Tried& tried, const TunerOptions& o) {
  std::vector<std::vector<std::string>> before;
  for (;;) {
    const std::vector<TunedRun> best = tried.best(kMoved);
    std::vector<std::vector<std::string>> flags;
    for (const TunedRun& run : best) flags.push_back(run.flags);
    if (flags == before) return;
    before = flags;
    for (const std::vector<std::string>& run : flags) {
      for (const TunedFlag& flag : o.space)
        for (const std::string& value : flag.values) tried.run(with(run, flag, value));
      for (const TunedFlag& flag : o.moves)
        for (const std::string& value : flag.values)
          tried.run(value == flag.values[0] ? without(run, flag) : with(run, flag, value));
    }
  }
}

}  // namespace

std::vector<TunedRun> tune(const TunerOptions& o) {
  const double capacity = find_machine(o.machine).capacity;  // says at once if there is none
  Tried tried(o, o.limit > 0 ? o.limit : capacity);
  for (std::vector<std::string>& flags : all_of(o.space)) tried.run(std::move(flags));
  if (!o.moves.empty()) move(tried, o);
  std::vector<TunedRun>&fit = tried.fit, &dropped = tried.dropped;
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
