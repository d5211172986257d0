// A Metropolis chain whose steps many threads compute and whose path none of them changes
// (Metropolis et al., "Equation of state calculations by fast computing machines", 1953).
#pragma once

#include <cstdint>
#include <vector>

#include "01_mutex_mae/problem.h"
#include "01_mutex_mae/team.h"

namespace aisc {

struct ChainOptions {
  std::uint64_t seed = 1;
  std::int64_t steps = 100;
  double step_size = 0.02;  // standard deviation of a proposal's step, for each weight
  double scale = 1;         // of the Laplace noise: the density is exp(-sum of errors / scale)
};

struct Chain {
  std::vector<float> w;       // (M) the weights after the last step
  std::vector<double> loss;   // (steps + 1) the MAE at the start and after each step
  std::int64_t accepted = 0;  // proposals taken
};

// Draws weights from the density exp(-N MAE(w) / scale), the posterior of the weights under Laplace
// noise. Step s = 0, 1, ... proposes w'_j = w_j + step_size z_j with z_j =
// Philox(seed, "proposal", s).normal(j), added in F64 and rounded to F32, and takes it if
// u < exp(N (MAE(w) - MAE(w')) / scale), u = Philox(seed, "accept").uniform(s). b stays. MAE is
// mae_reproducible, so the path is bitwise the same for every team; each error is asked for once at
// the start and once a step.
Chain metropolis(const Problem& problem, Team& team, const ChainOptions& options);

}  // namespace aisc
