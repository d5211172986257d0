#include "08_moe/moe_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace aisc {
namespace {

void wait(const Rank& rank, Travelling& rows, const std::string& name) {
  const auto span = rank.trace.span("communication", name);
  rows.work.wait();
}

}  // namespace

MoeLayer::MoeLayer(const Rank& rank, const std::string& name, const Options& options,
                   std::shared_ptr<const ExpertRanks> ranks, Samples samples,
                   std::unique_ptr<Layer> shared)
    : Layer(rank, name),
      self_(ranks ? nullptr : make_self_communicator(name)),
      ranks_(ranks ? std::move(ranks) : expert_ranks(*self_)),
      samples_(std::move(samples)),
      gate_(rank, name, options.experts, options.width, options.seed, samples_),
      experts_(rank, name + ".experts",
               {options.experts.count, options.width, options.hidden, options.residual_stddev},
               ranks_->rank(), ranks_->size()),
      shared_(std::move(shared)) {}

std::vector<Parameter*> MoeLayer::parameters() {
  std::vector<Parameter*> all = gate_.parameters();
  for (Parameter* p : experts_.parameters()) all.push_back(p);
  if (shared_)
    for (Parameter* p : shared_->parameters()) all.push_back(p);
  return all;
}

// Counts are the host's: they are not asked for again in backward.
void MoeLayer::keep(Saved& saved, const Dispatch& plan, const Route& route) const {
  Tensor counts({2 * std::ssize(plan.counts) + std::ssize(route.passing)}, DType::I64, host_);
  std::int64_t* to = counts.data<std::int64_t>();
  to = std::copy(plan.counts.begin(), plan.counts.end(), to);
  to = std::copy(route.arriving.begin(), route.arriving.end(), to);
  std::copy(route.passing.begin(), route.passing.end(), to);
  saved.push(std::move(counts));
  saved.push(plan.rows.share());
  saved.push(plan.choices.share());
}

void MoeLayer::recall(Saved& saved, Dispatch& plan, Route& route) const {
  plan.choices = saved.pop();
  plan.rows = saved.pop();
  const Tensor counts = saved.pop();
  const std::int64_t* all = counts.data<std::int64_t>();
  const std::int64_t E = experts_.count();
  plan.counts.assign(all, all + E);
  route = route_from({all + E, all + 2 * E}, plan.counts, ranks_->size());
  route.passing.assign(all + 2 * E, all + counts.count());
}

// Rows that this rank's experts have to do.
void MoeLayer::show_load(const Route& route) const {
  if (!rank_.trace.is_recording()) return;
  std::map<std::string, double> rows;
  const std::size_t own = route.counts.size();
  for (std::size_t e = 0; e < own; ++e)
    rows[fmt::format("expert {}", index(ranks_->rank()) * own + e)] =
        static_cast<double>(route.counts[e]);
  rank_.trace.count(name_ + ".load", std::move(rows));
}

Tensor MoeLayer::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("experts", name_);
  const Samples::Own own = samples_.own_of(x.shape(), pass);
  const std::int64_t C = x.shape()[-1], n = own.rows.count();
  Tensor mine = own.divided ? x.share().reshaped({n, C}) : Tensor({n, C}, x.dtype(), x.device());
  if (!own.divided && n > 0) x.device().copy(mine, as_rows(x).rows(own.rows.begin, own.rows.end));

  const Routed routed = gate_.route(mine, own, saved, pass);
  const Dispatch& plan = routed.dispatch;
  const Route route = route_of(*ranks_, plan.counts);
  if (!pass.recompute) show_load(route);
  Travelling there = to_experts(*ranks_, dispatched(mine, plan), route);  // comm: rows
  wait(rank_, there, name_ + ".there");
  Tensor answers = experts_.forward(by_expert(std::move(there.rows), route), route.counts, saved);
  Travelling back = to_tokens(*ranks_, by_rank(std::move(answers), route),
                              route);  // comm: rows, beside what no token waits for
  gate_.report(routed, pass);
  Tensor from_shared = shared_ ? shared_->forward(x.share(), saved, pass) : Tensor();
  wait(rank_, back, name_ + ".back");

  Tensor y = samples_.all_of(rank_, combined(back.rows, routed.gates, plan, n), x.shape().rows(),
                             own, name_ + ".rows");
  if (shared_) ops::add(y, y, from_shared);
  saved.push(std::move(back.rows));
  saved.push(std::move(mine));
  saved.push(routed.gates.share());
  keep(saved, plan, route);
  return std::move(y).reshaped(x.shape());
}

Tensor MoeLayer::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("experts", name_);
  Dispatch plan;
  Route route;
  recall(saved, plan, route);
  const Tensor gates = saved.pop(), mine = saved.pop(), answers = saved.pop();
  const Samples::Own own = samples_.own_of(dy.shape(), pass);
  const std::int64_t n = own.rows.count();

  auto [danswers, dgates] =
      combined_backward(as_rows(dy).rows(own.rows.begin, own.rows.end), answers, gates, plan);
  Travelling there = to_experts(*ranks_, danswers, route);  // comm: rows, beside `shared`
  const Tensor from_shared = shared_ ? shared_->backward(dy.share(), saved, pass) : Tensor();
  wait(rank_, there, name_ + ".there");
  Tensor dx_of_experts =
      experts_.backward(by_expert(std::move(there.rows), route), route.counts, saved, pass);
  Travelling back = to_tokens(*ranks_, by_rank(std::move(dx_of_experts), route),
                              route);  // comm: rows, beside the router's backward
  const Tensor dx_of_gate =
      gate_.backward(std::move(dgates).reshaped(gates.shape()), mine, own, saved, pass);
  wait(rank_, back, name_ + ".back");
  Tensor dx = dispatched_backward(back.rows, plan, n);
  if (n > 0) ops::add(dx, dx, dx_of_gate);
  dx = samples_.all_of(rank_, std::move(dx), dy.shape().rows(), own, name_ + ".rows");
  if (shared_) ops::add(dx, dx, from_shared);
  return std::move(dx).reshaped(dy.shape());
}

}  // namespace aisc
