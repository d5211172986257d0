#include "08_moe/more/local_experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/core/range.h"

namespace aisc {
namespace {

// Of each quadrant: a, b and c of d = a x_0 + b x_1 + c. Far apart, in units of the width of the
// loss's exp(-|d - o|^2 / 2), which is 1.
constexpr double kPieces[4][3] = {{-3, -3, 0}, {3, -3, 4}, {-3, 3, 8}, {3, 3, -4}};

double affine(const double* row, const double* x, std::int64_t inputs) {
  return std::inner_product(x, x + inputs, row, row[inputs]);
}

// What the loss of one point wants of each answer and of each gate's logit.
struct Wanted {
  double loss = 0;
  std::vector<double> d_o, d_logit;
};

Wanted cooperative(const LocalExperts::Answers& of, double d) {
  const std::size_t n = of.p.size();
  const double y = std::inner_product(of.p.begin(), of.p.end(), of.o.begin(), 0.0), e = d - y;
  Wanted wanted{e * e, std::vector<double>(n), std::vector<double>(n)};
  for (std::size_t j = 0; j < n; ++j) {
    wanted.d_o[j] = -2 * e * of.p[j];
    wanted.d_logit[j] = -2 * e * of.p[j] * (of.o[j] - y);
  }
  return wanted;
}

// h_j = p_j exp(-|d - o_j|^2 / 2) over their sum is the share of expert j in the answer: it learns
// by it, and the gate moves from p towards h. The largest exponent is taken out of the sum: where
// all experts are far off, all exponentials round to 0.
Wanted competitive(const LocalExperts::Answers& of, double d) {
  const std::size_t n = of.p.size();
  std::vector<double> h(n);
  double most = -INFINITY;
  for (std::size_t j = 0; j < n; ++j) {
    h[j] = std::log(of.p[j]) - (d - of.o[j]) * (d - of.o[j]) / 2;
    most = std::max(most, h[j]);
  }
  double sum = 0;
  for (double& share : h) sum += share = std::exp(share - most);
  Wanted wanted{-most - std::log(sum), std::vector<double>(n), std::vector<double>(n)};
  for (std::size_t j = 0; j < n; ++j) {
    wanted.d_o[j] = -h[j] / sum * (d - of.o[j]);
    wanted.d_logit[j] = of.p[j] - h[j] / sum;
  }
  return wanted;
}

}  // namespace

Points four_quadrants(std::int64_t count, std::uint64_t seed) {
  Points points{.inputs = 2};
  const Philox random(seed, "points");
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(2 * i);
    const double x0 = 2 * random.uniform(at) - 1, x1 = 2 * random.uniform(at + 1) - 1;
    const int piece = (x0 < 0 ? 1 : 0) + (x1 < 0 ? 2 : 0);
    const double* f = kPieces[piece];
    points.x.insert(points.x.end(), {x0, x1});
    points.d.push_back(f[0] * x0 + f[1] * x1 + f[2]);
    points.piece.push_back(piece);
  }
  return points;
}

LocalExperts::LocalExperts(std::int64_t experts, std::int64_t inputs, std::uint64_t seed)
    : experts_(experts), inputs_(inputs), weights_(index(2 * experts * (inputs + 1))) {
  const Philox random(seed, "local experts");
  for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] = 0.2 * random.normal(i);
}

LocalExperts::Answers LocalExperts::answers(const double* x) const {
  Answers of{std::vector<double>(index(experts_)), std::vector<double>(index(experts_))};
  const std::int64_t row = inputs_ + 1;
  for (std::int64_t j = 0; j < experts_; ++j) {
    of.o[index(j)] = affine(weights_.data() + j * row, x, inputs_);
    of.p[index(j)] = affine(weights_.data() + (experts_ + j) * row, x, inputs_);
  }
  const double most = *std::max_element(of.p.begin(), of.p.end());
  double sum = 0;
  for (double& p : of.p) sum += p = std::exp(p - most);
  for (double& p : of.p) p /= sum;
  return of;
}

LocalExperts::Judged LocalExperts::judge(const Points& points, MixtureLoss loss) const {
  Judged judged{0, std::vector<double>(weights_.size())};
  const std::int64_t row = inputs_ + 1;
  const double each = 1 / static_cast<double>(points.count());
  for (std::int64_t i = 0; i < points.count(); ++i) {
    const double *x = points.x.data() + i * inputs_, d = points.d[index(i)];
    const Answers of = answers(x);
    const Wanted wanted =
        loss == MixtureLoss::Cooperative ? cooperative(of, d) : competitive(of, d);
    judged.loss += each * wanted.loss;
    const auto add = [&](std::int64_t to, double slope) {
      double* gradient = judged.gradient.data() + to * row;
      for (std::int64_t k = 0; k < inputs_; ++k) gradient[k] += each * slope * x[k];
      gradient[inputs_] += each * slope;
    };
    for (std::int64_t j = 0; j < experts_; ++j) {
      add(j, wanted.d_o[index(j)]);
      add(experts_ + j, wanted.d_logit[index(j)]);
    }
  }
  return judged;
}

void LocalExperts::train(const Points& points, MixtureLoss loss, std::int64_t steps, double rate) {
  for (std::int64_t step = 0; step < steps; ++step) {
    const Judged judged = judge(points, loss);
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= rate * judged.gradient[i];
  }
}

double purity(const LocalExperts& experts, const Points& points) {
  const std::int64_t n = experts.count();
  std::vector<std::int64_t> points_of(index(n * n));  // (pieces, experts)
  for (std::int64_t i = 0; i < points.count(); ++i) {
    const auto p = experts.answers(points.x.data() + i * points.inputs).p;
    ++points_of[index(points.piece[index(i)] * n +
                      (std::max_element(p.begin(), p.end()) - p.begin()))];
  }
  std::vector<std::int64_t> of_piece(index(n));
  std::iota(of_piece.begin(), of_piece.end(), 0);
  std::int64_t best = 0;
  do {
    std::int64_t agree = 0;
    for (std::int64_t q = 0; q < n; ++q) agree += points_of[index(q * n + of_piece[index(q)])];
    best = std::max(best, agree);
  } while (std::next_permutation(of_piece.begin(), of_piece.end()));
  return static_cast<double>(best) / static_cast<double>(points.count());
}

std::int64_t one_of(std::span<const double> p, const Philox& random, std::uint64_t draw) {
  double left = random.uniform(draw);
  for (std::int64_t j = 0; j + 1 < std::ssize(p); ++j)
    if ((left -= p[index(j)]) < 0) return j;
  return std::ssize(p) - 1;  // what rounding leaves over is the last one's
}

}  // namespace aisc
