#include "08_moe/two_hops.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "08_moe/runs.h"
#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

std::vector<std::int64_t> transposed(const std::vector<std::int64_t>& table, std::size_t columns) {
  std::vector<std::int64_t> other;
  for (std::size_t j = 0; j < columns; ++j)
    for (std::size_t i = j; i < table.size(); i += columns) other.push_back(table[i]);
  return other;
}

}  // namespace

std::shared_ptr<const ExpertRanks> expert_ranks(Communicator& all, int ranks_per_node) {
  auto ranks = std::make_shared<ExpertRanks>();
  ranks->all = &all;
  const int g = ranks_per_node, N = all.size(), me = all.rank();
  if (g == 0 || g == N) return ranks;
  if (g < 0 || N % g != 0)
    fail(fmt::format("experts in nodes of {} ranks: expected one that divides {}", g, N));
  ranks->node = all.split(me / g, me, "experts' node");
  ranks->rail = all.split(me % g, me, "experts' rail");
  return ranks;
}

std::vector<std::int64_t> passing_of(const ExpertRanks& ranks,
                                     const std::vector<std::int64_t>& sent) {
  CpuDevice host;
  const std::size_t g = index(ranks.node->size());
  std::vector<std::int64_t> by_rail = transposed(sent, g);  // (g, N/g), from (N/g, g)
  std::vector<std::int64_t> passing(sent.size());
  const Shape shape{std::ssize(sent)};
  ranks.node
      ->all_to_all(ConstView(by_rail.data(), shape, DType::I64, host),
                   View(passing.data(), shape, DType::I64, host))
      .wait();  // comm: 8 bytes a rank, before the rows
  return passing;
}

Travelling one_hop(Communicator& ranks, const Tensor& x, const std::vector<std::int64_t>& sent,
                   const std::vector<std::int64_t>& received) {
  const std::int64_t C = x.shape()[-1];
  if (ranks.size() == 1) return {x.share(), Work()};
  const auto elements = [C](std::vector<std::int64_t> rows) {
    for (std::int64_t& row : rows) row *= C;
    return rows;
  };
  const std::int64_t rows = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  Tensor arrived({rows, C}, x.dtype(), x.device());
  Work work = ranks.all_to_all_v(x, elements(sent), arrived, elements(received));
  return {std::move(arrived), std::move(work)};
}

// Rows for (node m, rank l) lie in the order of m; they go to rank l of this node, in the order of
// l. There rows from each rank of the node, in the order of m, go to node m.
Travelling two_hops_there(const ExpertRanks& ranks, const Tensor& x, const Route& route) {
  const std::size_t g = index(ranks.node->size()), nodes = index(ranks.rail->size());
  const Tensor by_rail = transposed_runs(x.share(), route.sent, g, Transposed::There);
  Travelling inside =
      one_hop(*ranks.node, by_rail, sums_of_columns(route.sent, g),
              sums_of_runs(route.passing, nodes));  // comm: rows for other ranks of the node
  inside.work.wait();
  const Tensor by_node =
      transposed_runs(std::move(inside.rows), route.passing, nodes, Transposed::There);
  return one_hop(*ranks.rail, by_node, sums_of_columns(route.passing, nodes),
                 sums_of_runs(route.received, g));  // comm: rows for other nodes
}

Travelling two_hops_back(const ExpertRanks& ranks, const Tensor& y, const Route& route) {
  const std::size_t g = index(ranks.node->size()), nodes = index(ranks.rail->size());
  Travelling between = one_hop(*ranks.rail, y, sums_of_runs(route.received, g),
                               sums_of_columns(route.passing, nodes));  // comm: rows to other nodes
  between.work.wait();
  const Tensor by_rank =
      transposed_runs(std::move(between.rows), route.passing, nodes, Transposed::Back);
  Travelling inside = one_hop(*ranks.node, by_rank, sums_of_runs(route.passing, nodes),
                              sums_of_columns(route.sent, g));  // comm: rows to ranks of the node
  inside.work.wait();
  return {transposed_runs(std::move(inside.rows), route.sent, g, Transposed::Back), Work()};
}

}  // namespace aisc
