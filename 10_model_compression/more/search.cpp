#include "10_model_compression/more/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n - 1) / by + 1; }

void require_candidates(std::int64_t candidates) {
  if (candidates < 1) fail(fmt::format("search: {} candidates, expected 1 or more", candidates));
}

Trial tried(std::int64_t round, std::int64_t candidate, std::int64_t budget,
            const Evaluate& evaluate) {
  Trial trial{.round = round, .candidate = candidate, .budget = budget};
  try {
    trial.loss = evaluate(candidate, budget);
    if (!std::isfinite(trial.loss))
      trial.failure = fmt::format("its loss is {}, expected a finite number", trial.loss);
  } catch (const Error& error) {
    trial.failure = error.what();
  }
  if (!trial.failure.empty()) trial.loss = std::numeric_limits<double>::infinity();
  return trial;
}

// Adds a round of `alive`, and puts those that did not fail in their place, the best first: they
// come by index, and what is sorted stably leaves equal ones so.
void run_round(std::int64_t round, std::int64_t budget, std::vector<std::int64_t>& alive,
               const Evaluate& evaluate, std::vector<Trial>& trials) {
  const std::size_t begin = trials.size();
  std::sort(alive.begin(), alive.end());
  for (const std::int64_t candidate : alive)
    trials.push_back(tried(round, candidate, budget, evaluate));
  std::vector<const Trial*> good;
  for (std::size_t i = begin; i < trials.size(); ++i)
    if (trials[i].failure.empty()) good.push_back(&trials[i]);
  if (good.empty())
    fail(fmt::format("search: round {}: all {} candidates failed, candidate {} with: {}", round,
                     alive.size(), trials[begin].candidate, trials[begin].failure));
  std::stable_sort(good.begin(), good.end(),
                   [](const Trial* a, const Trial* b) { return a->loss < b->loss; });
  alive.clear();
  for (const Trial* trial : good) alive.push_back(trial->candidate);
}

SearchResult run_rounds(const std::vector<HalvingRound>& rounds, const Evaluate& evaluate) {
  SearchResult result;
  std::vector<std::int64_t> alive(index(rounds.front().candidates));
  std::iota(alive.begin(), alive.end(), 0);
  for (std::size_t k = 0; k < rounds.size(); ++k) {
    alive.resize(std::min(alive.size(), index(rounds[k].candidates)));
    run_round(static_cast<std::int64_t>(k), rounds[k].budget, alive, evaluate, result.trials);
  }
  result.best = alive.front();
  for (const Trial& trial : result.trials)  // its last one stays
    if (trial.candidate == result.best) result.loss = trial.loss;
  return result;
}

}  // namespace

std::int64_t SearchResult::spent() const {
  std::int64_t sum = 0;
  for (const Trial& trial : trials) sum += trial.budget;
  return sum;
}

std::int64_t SearchResult::spent_on(std::int64_t candidate) const {
  std::int64_t sum = 0;
  for (const Trial& trial : trials) sum += trial.candidate == candidate ? trial.budget : 0;
  return sum;
}

SearchResult random_search(std::int64_t candidates, std::int64_t budget, const Evaluate& evaluate) {
  require_candidates(candidates);
  if (budget < candidates)
    fail(fmt::format("search: a budget of {} for {} candidates, expected {} or more: 1 each",
                     budget, candidates, candidates));
  return run_rounds({{candidates, budget / candidates}}, evaluate);
}

std::vector<HalvingRound> halving_rounds(std::int64_t candidates, std::int64_t budget,
                                         std::int64_t eta) {
  require_candidates(candidates);
  if (eta < 2) fail(fmt::format("search: eta is {}, expected 2 or more", eta));
  std::vector<HalvingRound> rounds{{.candidates = candidates}};
  for (std::int64_t n = divided_up(candidates, eta); n > 1; n = divided_up(n, eta))
    rounds.push_back({.candidates = n});
  const std::int64_t count = std::ssize(rounds), least = count * candidates;
  if (budget < least)
    fail(
        fmt::format("search: a budget of {} for {} candidates and {} rounds, expected {} or more: "
                    "1 each in the first round",
                    budget, candidates, count, least));
  for (HalvingRound& round : rounds) round.budget = budget / (count * round.candidates);
  return rounds;
}

SearchResult successive_halving(std::int64_t candidates, std::int64_t budget, std::int64_t eta,
                                const Evaluate& evaluate) {
  return run_rounds(halving_rounds(candidates, budget, eta), evaluate);
}

}  // namespace aisc
