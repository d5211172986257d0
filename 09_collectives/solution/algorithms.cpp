#include "09_collectives/algorithms.h"

#include <fmt/format.h>

#include <string>

#include "09_collectives/binomial.h"
#include "09_collectives/broadcast.h"
#include "09_collectives/bruck.h"
#include "09_collectives/choose.h"
#include "09_collectives/double_tree.h"
#include "09_collectives/halving.h"
#include "09_collectives/naive.h"
#include "09_collectives/ring.h"
#include "09_collectives/solution/cost_formulas.h"
#include "09_collectives/two_level.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr int kMostSegments = 1 << 12;  // worth trying: more would be short messages

// Up to here algorithms are tried in which a rank sends or receives p - 1 messages at once: our
// model charges nothing for that, links and memories do. (Within a node such "one-shot" sums are
// what inference servers use.)
constexpr int kFewRanks = 8;

// A plan that needs no telling.
template <Plan (*plan)(const Collective&, int, int)>
Plan untold(const Collective& c, int rank, int size, const Tuning&) {
  return plan(c, rank, size);
}

// One that is told one number.
template <Plan (*plan)(const Collective&, int, int, int), int Tuning::*number>
Plan told(const Collective& c, int rank, int size, const Tuning& tuning) {
  return plan(c, rank, size, tuning.*number);
}

std::vector<Tuning> nothing_to_tune(int, double, const Network&) { return {{}}; }

std::vector<Tuning> few_ranks_only(int ranks, double, const Network&) {
  if (ranks > kFewRanks) return {};
  return {{}};
}

Plan ring(const Collective& c, int rank, int size, const Tuning&) {
  return ring_all_reduce_along(c, rank, natural_ring(size));
}

std::vector<Tuning> chain_tunings(int ranks, double bytes, const Network& network) {
  return {{.segments = best_segments(ranks, bytes, network.link, kMostSegments)}};
}

// What is best by the formula, which knows flat networks; and powers of two for others.
std::vector<Tuning> double_tree_tunings(int ranks, double bytes, const Network& network) {
  std::vector<Tuning> all{
      {.segments = best_double_tree_segments(ranks, bytes, network, kMostSegments)}};
  for (int k = 1; k <= 64; k *= 2) all.push_back({.segments = k});
  return all;
}

// Two levels where there are two: several ranks on each of several nodes.
std::vector<Tuning> two_level_tunings(int ranks, double, const Network& network) {
  const int g = network.ranks_per_node;
  if (g < 2 || g >= ranks) return {};
  return {{.ranks_per_node = g}};
}

constexpr Algorithm kAlgorithms[] = {
    {"naive", CommOp::AllReduce, untold<naive_all_reduce>, naive_all_reduce_cost, few_ranks_only},
    {"ring", CommOp::AllReduce, ring, ring_all_reduce_cost, nothing_to_tune},
    {"tree", CommOp::AllReduce, untold<tree_all_reduce>, tree_all_reduce_cost, nothing_to_tune},
    {"recursive_doubling", CommOp::AllReduce, untold<recursive_doubling_all_reduce>,
     recursive_doubling_all_reduce_cost, nothing_to_tune},
    {"rabenseifner", CommOp::AllReduce, untold<rabenseifner_all_reduce>, rabenseifner_cost,
     nothing_to_tune},
    {"double_tree", CommOp::AllReduce, told<double_tree_all_reduce, &Tuning::segments>,
     double_tree_cost, double_tree_tunings},
    {"two_level", CommOp::AllReduce, told<two_level_all_reduce, &Tuning::ranks_per_node>,
     two_level_cost, two_level_tunings},
    {"direct", CommOp::AllReduce, untold<direct_all_reduce>, direct_all_reduce_cost,
     few_ranks_only},

    {"binomial", CommOp::Reduce, untold<tree_reduce>, tree_reduce_cost, nothing_to_tune},

    {"ring", CommOp::ReduceScatter, untold<ring_reduce_scatter>, ring_reduce_scatter_cost,
     nothing_to_tune},
    {"recursive_halving", CommOp::ReduceScatter, untold<recursive_halving_reduce_scatter>,
     recursive_halving_cost, nothing_to_tune},
    {"direct", CommOp::ReduceScatter, untold<direct_reduce_scatter>, direct_reduce_scatter_cost,
     few_ranks_only},

    {"ring", CommOp::AllGather, untold<ring_all_gather>, ring_all_gather_cost, nothing_to_tune},
    {"recursive_doubling", CommOp::AllGather, untold<recursive_doubling_all_gather>,
     recursive_doubling_all_gather_cost, nothing_to_tune},
    {"bruck", CommOp::AllGather, untold<bruck_all_gather>, bruck_all_gather_cost, nothing_to_tune},
    {"direct", CommOp::AllGather, untold<direct_all_gather>, direct_all_gather_cost,
     few_ranks_only},

    {"binomial", CommOp::Broadcast, untold<binomial_broadcast>, binomial_broadcast_cost,
     nothing_to_tune},
    {"chain", CommOp::Broadcast, told<chain_broadcast, &Tuning::segments>, chain_broadcast_cost,
     chain_tunings},
    {"van_de_geijn", CommOp::Broadcast, untold<van_de_geijn_broadcast>, van_de_geijn_cost,
     nothing_to_tune},
    {"direct", CommOp::Broadcast, untold<direct_broadcast>, direct_broadcast_cost, few_ranks_only},

    {"binomial", CommOp::Gather, untold<binomial_gather>, binomial_gather_cost, nothing_to_tune},
    {"direct", CommOp::Gather, untold<direct_gather>, direct_gather_cost, few_ranks_only},

    {"binomial", CommOp::Scatter, untold<binomial_scatter>, binomial_scatter_cost, nothing_to_tune},
    {"direct", CommOp::Scatter, untold<direct_scatter>, direct_scatter_cost, few_ranks_only},

    {"pairwise", CommOp::AllToAll, untold<pairwise_all_to_all>, ring_all_gather_cost,
     nothing_to_tune},
    {"bruck", CommOp::AllToAll, untold<bruck_all_to_all>, bruck_all_to_all_cost, nothing_to_tune},
    {"direct", CommOp::AllToAll, untold<direct_all_to_all>, direct_all_gather_cost, few_ranks_only},

    {"dissemination", CommOp::Barrier, untold<dissemination_barrier>, dissemination_barrier_cost,
     nothing_to_tune},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm& algorithm(CommOp op, std::string_view name) {
  std::string names;
  for (const Algorithm& a : kAlgorithms) {
    if (a.op != op) continue;
    if (a.name == name) return a;
    names += (names.empty() ? "" : ", ") + std::string(a.name);
  }
  fail(fmt::format("no algorithm '{}' of {}; there are: {}", name, name_of(op),
                   names.empty() ? "none" : names));
}

PlanMaker plan_maker(const Algorithm& algorithm, const Tuning& tuning) {
  return [plan = algorithm.plan, tuning](const Collective& c, int rank, int size) {
    return plan(c, rank, size, tuning);
  };
}

}  // namespace aisc
