#include "12_encoders/more/beam_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

void require_options(const BeamOptions& o) {
  if (o.width < 1) fail(fmt::format("beam search: width {}, expected 1 or more", o.width));
  if (o.most < 1) fail(fmt::format("beam search: at most {} tokens, expected 1 or more", o.most));
  if (!(o.alpha >= 0)) fail(fmt::format("beam search: alpha {}, expected 0 or more", o.alpha));
}

void require_rows(const std::vector<std::vector<double>>& rows, std::size_t beginnings,
                  std::int32_t end) {
  if (rows.size() != beginnings)
    fail(
        fmt::format("beam search: {} rows of log-probabilities, expected {}, one of each beginning",
                    rows.size(), beginnings));
  for (const std::vector<double>& row : rows) {
    if (row.size() != rows[0].size())
      fail(fmt::format("beam search: rows of {} and {} log-probabilities, expected as many",
                       rows[0].size(), row.size()));
    for (const double x : row)
      if (!(x <= 0))
        fail(fmt::format("beam search: a log-probability of {}, expected at most 0", x));
  }
  if (end < 0 || index(end) >= rows[0].size())
    fail(fmt::format("beam search: the end is token {} of {}", end, rows[0].size()));
}

struct Beginning {
  std::vector<std::int32_t> tokens;
  double log_probability = 0;
};

// A beginning and the token that follows it.
struct Continuation {
  std::size_t of;
  std::int32_t token;
  double log_probability;
};

// The `width` best, the best first. Beginnings are in the order of their tokens where they are
// equal, so that this order is that of the tokens, too.
std::vector<Continuation> best_continuations(const std::vector<Beginning>& beginnings,
                                             const std::vector<std::vector<double>>& rows,
                                             const BeamOptions& o, bool has_to_end) {
  std::vector<Continuation> all;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t v = 0; v < rows[i].size(); ++v) {
      const auto token = static_cast<std::int32_t>(v);
      const double sum = beginnings[i].log_probability + rows[i][v];
      if (sum > kNever && (!has_to_end || token == o.end)) all.push_back({i, token, sum});
    }
  const auto better = [&](const Continuation& a, const Continuation& b) {
    if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
    const auto& first = beginnings[a.of].tokens;
    const auto& second = beginnings[b.of].tokens;
    return first != second ? first < second : a.token < b.token;
  };
  const auto kept = std::min(std::ssize(all), std::ptrdiff_t{o.width});
  std::partial_sort(all.begin(), all.begin() + kept, all.end(), better);
  all.resize(index(kept));
  return all;
}

bool ranks_before(const Hypothesis& a, const Hypothesis& b) {
  return a.score != b.score ? a.score > b.score : a.tokens < b.tokens;
}

}  // namespace

double length_penalty(std::int64_t n, double alpha) {
  return std::pow((5 + static_cast<double>(n)) / 6, alpha);
}

std::vector<Hypothesis> beam_search(const NextTokens& next, const BeamOptions& options) {
  require_options(options);
  std::vector<Hypothesis> finished;
  std::vector<Beginning> beginnings(1);
  double best = kNever;  // the score of the best finished one
  // Before each round: `beginnings` are of n - 1 tokens, the most probable first, and any text that
  // is not finished begins with one of them, or was dropped.
  for (std::int64_t n = 1; n <= options.most && !beginnings.empty(); ++n) {
    const double reachable =
        beginnings[0].log_probability / length_penalty(options.most, options.alpha);
    if (best > reachable) break;
    std::vector<std::vector<std::int32_t>> texts;
    for (const Beginning& b : beginnings) texts.push_back(b.tokens);
    const std::vector<std::vector<double>> rows = next(texts);
    require_rows(rows, texts.size(), options.end);
    std::vector<Beginning> longer;
    for (const Continuation& c : best_continuations(beginnings, rows, options, n == options.most)) {
      std::vector<std::int32_t> tokens = texts[c.of];
      if (c.token == options.end) {
        const double score = c.log_probability / length_penalty(n, options.alpha);
        finished.push_back({std::move(tokens), c.log_probability, score});
        best = std::max(best, score);
      } else {
        tokens.push_back(c.token);
        longer.push_back({std::move(tokens), c.log_probability});
      }
    }
    beginnings = std::move(longer);
  }
  if (finished.empty()) fail("beam search: no text of those that were kept may end");
  std::sort(finished.begin(), finished.end(), ranks_before);
  return finished;
}

}  // namespace aisc
