// Yours to write; from 08_moe/solution/exchange.cpp (stub 9ba7282db5f6).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "08_moe/exchange.h"

#include <algorithm>
#include <numeric>

#include "08_moe/host_ids.h"
#include "common/core/error.h"
#include "common/ops/ops.h"

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
  // Where a few ranks run in place of many (model/stage_replicas.h) nothing comes from the others:
  // they are taken to send what this one sends.
  const std::int64_t own = std::ssize(counts) / experts.size(), first = experts.rank() * own;
  for (int from = 0; from < experts.size(); ++from)
    std::copy_n(counts.begin() + first, own, received.data<std::int64_t>() + from * own);
  experts.all_to_all(sent, received).wait();  // comm: 8 bytes an expert, before the rows
  const auto all = received.values<std::int64_t>();
  return {all.begin(), all.end()};
}

// Of each rank's run of `own` numbers the sum.
std::vector<std::int64_t> sums_of_runs(const std::vector<std::int64_t>& numbers, std::int64_t own) {
  std::vector<std::int64_t> sums;
  for (auto run = numbers.begin(); run != numbers.end(); run += own)
    sums.push_back(std::accumulate(run, run + own, std::int64_t{0}));
  return sums;
}

std::vector<std::int64_t> times(std::vector<std::int64_t> numbers, std::int64_t factor) {
  for (std::int64_t& number : numbers) number *= factor;
  return numbers;
}

Travelling travel(Communicator& experts, const Tensor& x, const std::vector<std::int64_t>& sent,
                  const std::vector<std::int64_t>& received) {
  const std::int64_t C = x.shape()[-1];
  const std::int64_t rows = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  if (experts.size() == 1) return {x.share(), Work()};
  Tensor arrived({rows, C}, x.dtype(), x.device());
  Work work = experts.all_to_all_v(x, times(sent, C), arrived, times(received, C));
  return {std::move(arrived), std::move(work)};
}

}  // namespace

std::int64_t Route::arrived() const {
  return std::accumulate(received.begin(), received.end(), std::int64_t{0});
}

Route route_from(std::vector<std::int64_t> arriving, const std::vector<std::int64_t>& counts,
                 int ranks) {
  const std::int64_t own = std::ssize(counts) / ranks;
  Route route;
  route.arriving = std::move(arriving);
  // LAB 08.5: there and back
  // sums_of_runs(numbers, own) adds up the runs of `own` numbers that follow one another.
  // `counts` is by expert, those of rank 0 first; route.arriving by rank, then by own expert.
  throw NotImplemented("lab 08.5: there and back", __FILE__, __LINE__);
  // END LAB 08.5
  route.counts.resize(index(own));
  for (std::size_t i = 0; i < route.arriving.size(); ++i)
    route.counts[i % index(own)] += route.arriving[i];
  return route;
}

Route route_of(Communicator& experts, const std::vector<std::int64_t>& counts) {
  return route_from(experts.size() == 1 ? counts : counts_from_all(experts, counts), counts,
                    experts.size());
}

Travelling to_experts(Communicator& experts, const Tensor& x, const Route& route) {
  // LAB 08.5: there and back
  // travel(experts, x, sent, received): rows for each rank, and from it.
  throw NotImplemented("lab 08.5: there and back", __FILE__, __LINE__);
  // END LAB 08.5
}

Travelling to_tokens(Communicator& experts, const Tensor& y, const Route& route) {
  // LAB 08.5: there and back
  // What came is what goes.
  throw NotImplemented("lab 08.5: there and back", __FILE__, __LINE__);
  // END LAB 08.5
}

namespace {

enum class Order { ByExpert, ByRank };

// Runs of rows change places: run (rank, expert) of what arrived is run (expert, rank) by expert.
Tensor reordered(Tensor x, const Route& route, Order order) {
  const std::size_t own = route.counts.size(), ranks = route.arriving.size() / own;
  if (own == 1 || ranks == 1) return x;
  std::vector<std::int64_t> begins(route.arriving.size());  // of runs, by rank
  std::exclusive_scan(route.arriving.begin(), route.arriving.end(), begins.begin(),
                      std::int64_t{0});
  Tensor y(x.shape(), x.dtype(), x.device());
  const std::int64_t C = x.shape()[-1];
  std::int64_t grouped = 0;  // where the next run begins, by expert
  for (std::size_t e = 0; e < own; ++e)
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::int64_t count = route.arriving[r * own + e] * C;
      const std::int64_t by_rank_at = begins[r * own + e] * C;
      if (count == 0) continue;
      if (order == Order::ByExpert)
        x.device().copy(y.view().flat(grouped, count), x.view().flat(by_rank_at, count));
      else
        x.device().copy(y.view().flat(by_rank_at, count), x.view().flat(grouped, count));
      grouped += count;
    }
  return y;
}

}  // namespace

Tensor by_expert(Tensor arrived, const Route& route) {
  return reordered(std::move(arrived), route, Order::ByExpert);
}

Tensor by_rank(Tensor grouped, const Route& route) {
  return reordered(std::move(grouped), route, Order::ByRank);
}

}  // namespace aisc
