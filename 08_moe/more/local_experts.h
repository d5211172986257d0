// From dense to sparse: a mixture in which every expert answers and a gate weighs the answers, as
// experts were first (Jacobs, Jordan, Nowlan and Hinton, "Adaptive mixtures of local experts",
// Neural Computation 3, 1991). Linear experts, a linear gate, one output, sums by hand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/core/rng.h"

namespace aisc {

// N points of D inputs, each from one of some pieces of the plane.
struct Points {
  std::int64_t inputs = 0;
  std::vector<double> x;  // (N, D)
  std::vector<double> d;  // (N): what is wanted
  std::vector<std::int64_t> piece;

  std::int64_t count() const { return static_cast<std::int64_t>(d.size()); }
};
// Of [-1, 1]^2, uniformly. On each quadrant d is another linear function of x, without noise.
Points four_quadrants(std::int64_t count, std::uint64_t seed);

// How n experts that answer o_j with gates p_j are judged by d.
enum class MixtureLoss {
  Cooperative,  // |d - sum p_j o_j|^2, equation 1.1: each makes up for what the others leave over
  Competitive   // -log sum p_j exp(-|d - o_j|^2 / 2), equation 1.3: the better one learns more
};

class LocalExperts {
 public:
  // Weights are small normal numbers.
  LocalExperts(std::int64_t experts, std::int64_t inputs, std::uint64_t seed);

  // p (n) = softmax(gate x), and o (n).
  struct Answers {
    std::vector<double> p, o;
  };
  Answers answers(const double* x) const;  // x (D)

  // The mean over the points, and its gradient, shaped as weights().
  struct Judged {
    double loss = 0;
    std::vector<double> gradient;
  };
  Judged judge(const Points& points, MixtureLoss loss) const;
  // So many steps down the gradient of all points.
  void train(const Points& points, MixtureLoss loss, std::int64_t steps, double rate);

  // (2, n, D + 1): experts, then gates; the last column is added to.
  std::vector<double>& weights() { return weights_; }
  std::int64_t count() const { return experts_; }

 private:
  std::int64_t experts_, inputs_;
  std::vector<double> weights_;
};

// The share of points whose largest gate is that of their piece's expert, where each piece is given
// an expert of its own so that the share is largest. 1: the experts have divided the pieces among
// them. As many experts as pieces.
double purity(const LocalExperts& experts, const Points& points);

// The paper's stochastic switch: one of n, number j with probability p_j. A pure function of the
// stream and `draw`: any rank can say what another one has drawn.
std::int64_t one_of(std::span<const double> p, const Philox& random, std::uint64_t draw);

}  // namespace aisc
