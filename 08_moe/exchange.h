// Tokens go to the ranks of their experts and come home: two all-to-alls forward, two backward.
#pragma once

#include <cstdint>
#include <vector>

#include "08_moe/expert_ranks.h"
#include "common/core/tensor.h"

namespace aisc {

// How many rows a rank sends to each of the N ranks and gets from each, of the tokens of one
// dispatch; it has E/N of E experts.
struct Route {
  std::vector<std::int64_t> sent, received;  // (N): rows for rank p, and from it
  std::vector<std::int64_t> arriving;        // (N, E/N): from rank p for own expert e
  std::vector<std::int64_t> counts;          // (E/N): of own experts, from all ranks
  // Of two hops, (g, N/g): rows that rank l of this node sends to each node by this rank.
  std::vector<std::int64_t> passing;

  std::int64_t arrived() const;  // rows, from all ranks
};

// Collective. counts (E): rows for each expert. Ranks tell each other first: 8 E bytes each, so
// that all know how much memory what comes needs. Every rank takes part, also with no rows.
Route route_of(const ExpertRanks& ranks, const std::vector<std::int64_t>& counts);
// Of counts (E), and what is arriving (N, E/N); without `passing`.
Route route_from(std::vector<std::int64_t> arriving, const std::vector<std::int64_t>& counts,
                 int ranks);

// Rows (M, C) on their way.
struct Travelling {
  Tensor rows;
  Work work;
};
// x (M, C), sorted by expert, to the experts' ranks: (arrived, C), sorted by the rank that they
// come from and then by expert. Of two hops it waits for the first, and the last is under way when
// it returns. And the way back, of as many rows in that order.
// Bytes sent per rank: those of the rows for other ranks, of two hops those for other ranks of the
// node and those that pass for other nodes.
Travelling to_experts(const ExpertRanks& ranks, const Tensor& x, const Route& route);
Travelling to_tokens(const ExpertRanks& ranks, const Tensor& y, const Route& route);

// Rows that arrived, sorted by expert and then by the rank that they come from, and back.
Tensor by_expert(Tensor arrived, const Route& route);
Tensor by_rank(Tensor grouped, const Route& route);

}  // namespace aisc
