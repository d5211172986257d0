#include "08_moe/exchange.h"

#include <algorithm>
#include <numeric>

#include "08_moe/runs.h"
#include "08_moe/two_hops.h"
#include "common/core/range.h"

namespace aisc {
namespace {

// (N, E/N): how many rows each rank sends to each of this rank's experts. Numbers of the host, also
// where the device has none.
std::vector<std::int64_t> counts_from_all(Communicator& experts,
                                          const std::vector<std::int64_t>& counts) {
  CpuDevice host;
  const Shape shape{std::ssize(counts)};
  const Tensor sent(shape, DType::I64, host), received(shape, DType::I64, host);
  std::copy(counts.begin(), counts.end(), sent.data<std::int64_t>());
  // Where a few ranks run in place of many nothing comes from the others: they are taken to send
  // what this one sends.
  const std::int64_t own = std::ssize(counts) / experts.size(), first = experts.rank() * own;
  for (int from = 0; from < experts.size(); ++from)
    std::copy_n(counts.begin() + first, own, received.data<std::int64_t>() + from * own);
  experts.all_to_all(sent, received).wait();  // comm: 8 bytes an expert, before the rows
  const auto all = received.values<std::int64_t>();
  return {all.begin(), all.end()};
}

}  // namespace

std::int64_t Route::arrived() const {
  return std::accumulate(received.begin(), received.end(), std::int64_t{0});
}

Route route_from(std::vector<std::int64_t> arriving, const std::vector<std::int64_t>& counts,
                 int ranks) {
  const std::size_t own = counts.size() / index(ranks);
  Route route;
  route.arriving = std::move(arriving);
  // LAB 08.5: there and back
  // > sums_of_runs(numbers, own) adds up the runs of `own` numbers that follow one another.
  // > `counts` is by expert, those of rank 0 first; route.arriving by rank, then by own expert.
  route.sent = sums_of_runs(counts, own);
  route.received = sums_of_runs(route.arriving, own);
  // END LAB 08.5
  route.counts = sums_of_columns(route.arriving, own);
  return route;
}

Route route_of(const ExpertRanks& ranks, const std::vector<std::int64_t>& counts) {
  Route route = route_from(ranks.size() == 1 ? counts : counts_from_all(*ranks.all, counts), counts,
                           ranks.size());
  if (ranks.node) route.passing = passing_of(ranks, route.sent);
  return route;
}

Travelling to_experts(const ExpertRanks& ranks, const Tensor& x, const Route& route) {
  if (ranks.node) return two_hops_there(ranks, x, route);
  // LAB 08.5: there and back
  // > one_hop(communicator, x, sent, received) sends so many rows to each rank, and gets so many
  // > from each. The communicator is *ranks.all.
  return one_hop(*ranks.all, x, route.sent, route.received);  // comm: rows for other ranks
  // END LAB 08.5
}

Travelling to_tokens(const ExpertRanks& ranks, const Tensor& y, const Route& route) {
  if (ranks.node) return two_hops_back(ranks, y, route);
  // LAB 08.5: there and back
  // > What came is what goes.
  return one_hop(*ranks.all, y, route.received, route.sent);  // comm: their answers
  // END LAB 08.5
}

Tensor by_expert(Tensor arrived, const Route& route) {
  return transposed_runs(std::move(arrived), route.arriving, route.counts.size(),
                         Transposed::There);
}

Tensor by_rank(Tensor grouped, const Route& route) {
  return transposed_runs(std::move(grouped), route.arriving, route.counts.size(), Transposed::Back);
}

}  // namespace aisc
