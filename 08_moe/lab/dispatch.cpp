// Yours to write; from 08_moe/solution/dispatch.cpp (stub 89b2c48cd48f).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "08_moe/dispatch.h"

#include "08_moe/host_ids.h"
#include "common/core/error.h"
#include "common/ops/ops.h"

namespace aisc {

Dispatch dispatch_of(Device& device, std::span<const std::int32_t> experts,
                     std::span<const std::uint8_t> kept, std::int64_t chosen,
                     std::int64_t expert_count) {
  Dispatch plan;
  plan.counts.resize(index(expert_count));
  for (std::size_t i = 0; i < experts.size(); ++i)
    if (kept[i]) ++plan.counts[index(experts[i])];
  std::vector<std::int64_t> next;  // where the next choice of each expert goes
  std::int64_t all = 0;
  for (const std::int64_t count : plan.counts) {
    next.push_back(all);
    all += count;
  }
  std::vector<std::int32_t> rows(index(all)), choices(index(all));
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (!kept[i]) continue;
    const std::size_t to = index(next[index(experts[i])]++);
    rows[to] = static_cast<std::int32_t>(i / index(chosen));
    choices[to] = static_cast<std::int32_t>(i);
  }
  plan.rows = ids_on(device, rows);
  plan.choices = ids_on(device, choices);
  return plan;
}

Dispatch even_dispatch(Device& device, std::int64_t count, std::int64_t expert_count) {
  const std::vector<std::int32_t> somewhere(index(count));
  Dispatch plan{ids_on(device, somewhere), ids_on(device, somewhere), {}};
  for (std::int64_t e = 0; e < expert_count; ++e)
    plan.counts.push_back(share_of(count, e, expert_count).count());
  return plan;
}

namespace {

// Of table (n, C) the rows that ids (M) number.
Tensor gathered(ConstView table, const Tensor& ids) {
  Tensor rows({ids.count(), table.shape()[-1]}, table.dtype(), table.device());
  if (rows.count() > 0) ops::embedding(rows, table, ids);
  return rows;
}
// (n, C): of each row the sum of those of x (M, C) that ids number it.
Tensor scattered(ConstView x, const Tensor& ids, std::int64_t n) {
  Tensor sums({n, x.shape()[-1]}, x.dtype(), x.device());
  if (sums.count() > 0) ops::embedding_backward(sums, x, ids, ops::Into::Overwrite);
  return sums;
}
// The gates (M) of what is sent, of all (n k).
Tensor gates_of(ConstView gates, const Dispatch& plan) {
  return gathered(gates.reshaped({gates.count(), 1}), plan.choices).reshaped({plan.count()});
}

}  // namespace

Tensor dispatched(ConstView x, const Dispatch& plan) { return gathered(x, plan.rows); }

Tensor dispatched_backward(ConstView dy, const Dispatch& plan, std::int64_t tokens) {
  return scattered(dy, plan.rows, tokens);
}

Tensor combined(ConstView answers, ConstView gates, const Dispatch& plan, std::int64_t tokens) {
  // LAB 08.6: combine
  // gates_of(gates, plan) are the gates of the answers, one a row: ops::scale_rows(y, x, factors).
  // scattered(x, ids, n) adds rows up. A token may have several answers, or none.
  throw NotImplemented("lab 08.6: combine", __FILE__, __LINE__);
  // END LAB 08.6
}

CombineGrads combined_backward(ConstView dy, ConstView answers, ConstView gates,
                               const Dispatch& plan) {
  // LAB 08.6: combine
  // gathered(dy, plan.rows) is the gradient of each weighted answer, gate times answer. What is
  // that of the answer, and what that of the gate? ops::row_dots(dots, a, b) is a sum over columns.
  throw NotImplemented("lab 08.6: combine", __FILE__, __LINE__);
  // END LAB 08.6
}

}  // namespace aisc
