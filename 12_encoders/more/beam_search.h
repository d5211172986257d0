// Which text does a model find most probable? Word by word the best is not the best in all, and
// there are too many to try: a beam keeps the few best beginnings.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace aisc {

// What a model says: of each of N beginnings the log-probabilities of all V tokens that may follow,
// (N, V). All beginnings of a call have as many tokens, without the one that every text begins
// with; the first call has one, which is empty. A token that cannot follow has minus infinity.
using NextTokens = std::function<std::vector<std::vector<double>>(
    std::span<const std::vector<std::int32_t>> beginnings)>;

struct BeamOptions {
  int width = 4;          // beginnings that are kept; 1: greedy
  double alpha = 0.6;     // of the length penalty; 0: none
  std::int32_t end = 0;   // the token that ends a text
  std::int64_t most = 0;  // tokens of a text, its end included
};

struct Hypothesis {
  std::vector<std::int32_t> tokens;  // without the end
  double log_probability = 0;        // of all tokens and the end
  double score = 0;  // log_probability / length_penalty(): by which the best is found
};

// ((5 + n) / 6)^alpha of a text of n tokens, its end included (Wu et al., "Google's neural machine
// translation system", arXiv 1609.08144, equation 14). Each token makes a text less probable, so
// without it short texts win: of log-probabilities -3 with 4 tokens and -3.3 with 8 the first is
// larger; divided by 1.5^.6 = 1.28 and 2.17^.6 = 1.59, the second, -2.35 against -2.08.
double length_penalty(std::int64_t n, double alpha);

// The finished texts that were met, the best first. Of equal ones the one with smaller tokens comes
// first, at the first place where they differ. In each step the `width` most probable of all
// continuations are kept; those that end are finished, the others go on. A text of most - 1 tokens
// has to end. The search is over once the best finished score cannot be reached by any beginning:
// a beginning's log-probability falls with each token, and at best is divided by the penalty of the
// longest text.
// Throws Error: width or most below 1, alpha below 0, an end outside [0, V), not N rows of as many
// log-probabilities, one that is NaN or more than 0, no text that may end.
std::vector<Hypothesis> beam_search(const NextTokens& next, const BeamOptions& options);

}  // namespace aisc
