// Steps follow one another and are not for threads to share; the MAE of each proposal is. What is
// random is a function of (seed, step): no thread's part in it, and nothing to keep in order.
#include "01_mutex_mae/metropolis.h"

#include <cmath>

#include "01_mutex_mae/reproducible.h"
#include "common/core/rng.h"

namespace aisc {

Chain metropolis(const Problem& problem, Team& team, const ChainOptions& options) {
  // LAB 01.12: metropolis
  // > Where the chain stands is chain.w and its loss; a copy of the problem takes the proposals.
  Problem proposal = problem;
  double loss = mae_reproducible(problem, team);
  Chain chain{.w = problem.w, .loss = {loss}};
  const auto samples = static_cast<double>(problem.N);
  const Philox accept(options.seed, "accept");
  for (std::int64_t s = 0; s < options.steps; ++s) {
    const auto step = static_cast<std::uint64_t>(s);
    const Philox random(options.seed, "proposal", step);
    for (std::size_t j = 0; j < chain.w.size(); ++j)
      proposal.w[j] = static_cast<float>(chain.w[j] + options.step_size * random.normal(j));
    const double proposed = mae_reproducible(proposal, team);
    if (accept.uniform(step) < std::exp(samples * (loss - proposed) / options.scale)) {
      chain.w = proposal.w;
      loss = proposed;
      ++chain.accepted;
    }
    chain.loss.push_back(loss);
  }
  return chain;
  // END LAB 01.12
}

}  // namespace aisc
