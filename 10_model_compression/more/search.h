// Search: which of n candidates has the lowest loss, where a budget is shared among them. The
// engine knows nothing of models: a candidate is an index, and a budget counts whatever the caller
// counts (steps of training, seconds, requests).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace aisc {

// The loss of a candidate, 0 to n - 1, that has spent `budget`; lower is better. Each call begins
// anew: the engine counts the whole budget of every call, also where the caller has kept what an
// earlier call reached and goes on from there. A candidate fails if this throws Error or returns
// what is not finite. It is then worse than all others, and is asked no more. Other exceptions end
// the search.
using Evaluate = std::function<double(std::int64_t candidate, std::int64_t budget)>;

struct Trial {
  std::int64_t round = 0, candidate = 0, budget = 0;
  double loss = 0;      // infinity: it failed
  std::string failure;  // why; "" if it did not
};

struct SearchResult {
  std::int64_t best = 0;  // the lowest loss of the last round; of equal ones the lowest index
  double loss = 0;
  std::vector<Trial> trials;  // round by round, in each by index

  std::int64_t spent() const;
  std::int64_t spent_on(std::int64_t candidate) const;
};

// Random search (Bergstra and Bengio, JMLR 13, 2012), of candidates that were drawn: all of them
// get the same, budget / n, rounded down. One round. Throws Error for no candidate, for a budget of
// less than 1 each, and where all fail.
SearchResult random_search(std::int64_t candidates, std::int64_t budget, const Evaluate& evaluate);

// What each candidate of a round gets.
struct HalvingRound {
  std::int64_t candidates = 0, budget = 0;
  bool operator==(const HalvingRound&) const = default;
};
// K rounds share the budget equally, K the number of divisions by eta from n to 1, at least 1; of
// n candidates ceil(n / eta) survive a round. Each of a round's n_k candidates gets
// budget / (K n_k), rounded down: about eta times what it had in the round before. 8 candidates and
// a budget of 96, by halves: 8 with 4 each, 4 with 8, 2 with 16; 32 a round. Throws Error for no
// candidate, eta < 2, and a first round of less than 1 each.
std::vector<HalvingRound> halving_rounds(std::int64_t candidates, std::int64_t budget,
                                         std::int64_t eta = 2);

// Successive halving (Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed
// bandits", ICML 2013; Jamieson and Talwalkar, arXiv 1502.07943, which counts a round's budget
// further from the one before): those with the lowest losses of a round survive, of equal ones the
// lowest indices. The same budget as random_search's is spent, up to what rounding leaves over; the
// last round's candidates have more than a mean share of it. Those that fail do not survive, even
// if fewer than planned are left: what they would have got is not spent. Throws Error as
// halving_rounds does, and where all of a round fail.
SearchResult successive_halving(std::int64_t candidates, std::int64_t budget, std::int64_t eta,
                                const Evaluate& evaluate);

}  // namespace aisc
