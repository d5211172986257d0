// What this module is about, as tables and as numbers for tools/plot: what each algorithm costs, by
// its formula and followed step by step; which to choose; rings and trees of up to 24,576 ranks;
// the rings of real machines; and what a communicator says of a ring that deadlocks.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "09_collectives/choose.h"
#include "09_collectives/cost.h"
#include "09_collectives/double_tree.h"
#include "09_collectives/halving.h"
#include "09_collectives/nvidia_table.h"
#include "09_collectives/rails.h"
#include "09_collectives/ring.h"
#include "09_collectives/rotate.h"
#include "09_collectives/search.h"
#include "common/comm/launch.h"
#include "common/comm/simulate.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  int ranks = 64;
  double alpha_us = 5, gigabytes_per_second = 12.5, added_gigabytes_per_second = 100;
  double most_messages = 2.2e6;  // of a plan that is followed step by step
  bool quick = false;
};

Network network_of(const Flags& flags) {
  return {.link = {flags.alpha_us * 1e-6, 1e-9 / flags.gigabytes_per_second},
          .reduce_seconds_per_byte = 1e-9 / flags.added_gigabytes_per_second};
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string bytes_text(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB"})
    if (bytes >= 1024) {
      bytes /= 1024;
      unit = next;
    }
  return fmt::format("{:.4g} {}", bytes, unit);
}

// The tuning of least cost, and that cost.
std::pair<Tuning, double> best(const Algorithm& algorithm, int ranks, double bytes,
                               const Network& network) {
  std::pair<Tuning, double> best{{}, HUGE_VAL};
  for (const Tuning& tuning : algorithm.tunings(ranks, bytes, network)) {
    const double seconds = cost(algorithm, ranks, bytes, network, tuning).seconds;
    if (seconds < best.second) best = {tuning, seconds};
  }
  return best;
}

// Seconds of the plans themselves. Bytes are rounded up to what divides evenly.
double simulated(const Algorithm& algorithm, const Tuning& tuning, int ranks, double bytes,
                 const Network& network) {
  const std::int64_t unit = 4 * std::int64_t{ranks};
  const auto even =
      algorithm.op == CommOp::AllReduce
          ? static_cast<std::int64_t>(bytes) / 4 * 4
          : static_cast<std::int64_t>(std::ceil(bytes / static_cast<double>(unit))) * unit;
  return simulate(plan_maker(algorithm, tuning), call_of(algorithm.op, ranks, even), ranks, network)
      .seconds;
}

// ---- what each costs ---------------------------------------------------------------------------

Json costs(const Network& network) {
  Json rows = Json::array();
  for (const int ranks : {8, 6}) {
    const double bytes = 4.0 * 8 * 6 * 4 * 1024;  // what 8 and 6 ranks and their halves divide
    fmt::print("{} ranks, {}\n", ranks, bytes_text(bytes));
    fmt::print("{:<15}{:<20}{:>6}{:>10}{:>12}{:>12}{:>12}{:>12}\n", "operation", "algorithm",
               "steps", "messages", "bytes sent", "of all", "by formula", "simulated");
    for (const Algorithm& algorithm : algorithms()) {
      const double n = algorithm.op == CommOp::Barrier ? 0 : bytes;
      if (algorithm.tunings(ranks, n, network).empty()) continue;
      const Tuning tuning = best(algorithm, ranks, n, network).first;
      const Cost c = cost(algorithm, ranks, n, network, tuning);
      const double seconds = simulated(algorithm, tuning, ranks, n, network);
      const std::string name = tuning.segments > 1
                                   ? fmt::format("{} x {}", algorithm.name, tuning.segments)
                                   : std::string(algorithm.name);
      fmt::print("{:<15}{:<20}{:>6}{:>10}{:>12.0f}{:>12.0f}{:>12}{:>12}\n", name_of(algorithm.op),
                 name, c.steps, c.messages, c.bytes, c.total_bytes, time_text(c.seconds),
                 time_text(seconds));
      rows.push_back({{"ranks", ranks},
                      {"bytes", n},
                      {"operation", name_of(algorithm.op)},
                      {"algorithm", algorithm.name},
                      {"segments", tuning.segments},
                      {"steps", c.steps},
                      {"messages", c.messages},
                      {"bytes_sent", c.bytes},
                      {"seconds", c.seconds},
                      {"simulated_seconds", seconds}});
    }
    fmt::print("\n");
  }
  return rows;
}

// ---- which to choose ----------------------------------------------------------------------------

Json sizes(const Flags& flags, const Network& network) {
  Json rows = Json::array(), chosen = Json::array(), crossings = Json::array();
  fmt::print("all_reduce of {} ranks: what is chosen\n", flags.ranks);
  std::string last;
  for (double bytes = 8; bytes <= 4.0 * (1 << 30); bytes *= 2) {
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.op != CommOp::AllReduce) continue;
      const auto [tuning, seconds] = best(algorithm, flags.ranks, bytes, network);
      if (!std::isfinite(seconds)) continue;
      rows.push_back({{"algorithm", algorithm.name},
                      {"bytes", bytes},
                      {"seconds", seconds},
                      {"segments", tuning.segments}});
    }
    const Choice choice = choose_all_reduce(flags.ranks, bytes, network);
    chosen.push_back({{"bytes", bytes},
                      {"algorithm", choice.algorithm->name},
                      {"segments", choice.tuning.segments},
                      {"seconds", choice.seconds}});
    if (choice.algorithm->name != last)
      fmt::print("  from {:>9}  {:<20} {}\n", bytes_text(bytes), choice.algorithm->name,
                 time_text(choice.seconds));
    last = choice.algorithm->name;
  }
  fmt::print("\n{:<20}{:<16}{:>6}{:>16}{:>16}\n", "shorter: first", "longer: second", "ranks",
             "by formula", "simulated");
  for (const int ranks : {4, 6, 16, 64})
    for (const char* later : {"ring", "rabenseifner"}) {
      const Algorithm& first = algorithm(CommOp::AllReduce, "recursive_doubling");
      const Algorithm& second = algorithm(CommOp::AllReduce, later);
      const std::int64_t unit =
          4 * std::int64_t{ranks} * std::bit_floor(static_cast<unsigned>(ranks));
      const std::int64_t most = std::int64_t{1} << 36;
      const auto formula = crossover(first, second, ranks, network, unit, most, By::Formula);
      const auto simulation = crossover(first, second, ranks, network, unit, most, By::Simulation);
      fmt::print("{:<20}{:<16}{:>6}{:>16}{:>16}\n", first.name, second.name, ranks, formula,
                 simulation);
      crossings.push_back({{"first", first.name},
                           {"second", second.name},
                           {"ranks", ranks},
                           {"formula", formula},
                           {"simulation", simulation}});
    }
  fmt::print("\n");
  return {{"ranks", flags.ranks}, {"rows", rows}, {"chosen", chosen}, {"crossovers", crossings}};
}

// ---- how it grows with the number of ranks ------------------------------------------------------

Json scale(const Flags& flags, const Network& network) {
  constexpr double kLong = 1 << 30;
  std::vector<int> counts;
  for (int p = 2; p < 24576; p *= 2) counts.push_back(p);
  counts.push_back(24576);
  Json rows = Json::array();
  fmt::print("{:<20}{:>7}{:>14}{:>14}{:>16}{:>16}\n", "all_reduce", "ranks", "shortest",
             "simulated", "1 GiB, busbw", "simulated");
  for (const char* name : {"ring", "recursive_doubling", "rabenseifner", "double_tree"}) {
    const Algorithm& algorithm = aisc::algorithm(CommOp::AllReduce, name);
    for (const int ranks : counts) {
      const bool has_chunks = algorithm.name == "ring" || algorithm.name == "rabenseifner";
      const double shortest = has_chunks ? 4.0 * ranks : 8;  // no chunk is empty
      const auto [short_tuning, latency] = best(algorithm, ranks, shortest, network);
      const auto [long_tuning, seconds] = best(algorithm, ranks, kLong, network);
      const double factor = 2.0 * (ranks - 1) / ranks;
      Json row{{"algorithm", name},
               {"ranks", ranks},
               {"latency_seconds", latency},
               {"busbw", kLong / seconds * factor}};
      std::string latency_text = "-", busbw_text = "-";
      // Messages of all ranks, at most.
      const auto messages = [&](const Tuning& tuning) {
        return static_cast<double>(ranks) *
               static_cast<double>(algorithm.cost(ranks, kLong, network, tuning).messages);
      };
      if (messages(short_tuning) <= flags.most_messages) {
        const double simulated_latency =
            simulated(algorithm, short_tuning, ranks, shortest, network);
        row["simulated_latency_seconds"] = simulated_latency;
        latency_text = time_text(simulated_latency);
      }
      if (messages(long_tuning) <= flags.most_messages) {
        const double busbw =
            kLong / simulated(algorithm, long_tuning, ranks, kLong, network) * factor;
        row["simulated_busbw"] = busbw;
        busbw_text = fmt::format("{:.2f} GB/s", busbw / 1e9);
      }
      fmt::print("{:<20}{:>7}{:>14}{:>14}{:>11.2f} GB/s{:>16}\n", name, ranks, time_text(latency),
                 latency_text, kLong / seconds * factor / 1e9, busbw_text);
      rows.push_back(row);
    }
  }
  fmt::print("\n");
  return {{"long_bytes", kLong}, {"rows", rows}};
}

// ---- what a ring and two trees look like --------------------------------------------------------

Json trees(int ranks) {
  Json first = Json::array(), second = Json::array();
  for (int r = 0; r < ranks; ++r) {
    first.push_back(first_tree(r, ranks).parent);
    second.push_back(second_tree(r, ranks).parent);
  }
  fmt::print("two trees of {}: parents {} and {}\n\n", ranks, first.dump(), second.dump());
  return {{"first", first}, {"second", second}};
}

// What three ranks hear that each wait for their send.
std::string deadlock() {
  try {
    launch({.ranks = 3}, [](Rank rank) {
      const Tensor in({1000}, DType::F32, rank.device), out({1000}, DType::F32, rank.device);
      rotate_and_wait(rank.world, in, out);
    });
  } catch (const Error& e) {
    fmt::print("a ring whose ranks send, wait, and would then receive:\n{}\n\n", e.what());
    return e.what();
  }
  fail("a ring of sends that wait came to an end");
}

// ---- where the wires are ------------------------------------------------------------------------

// An all-reduce of 256 MiB: along all found rings at once, along one ring in an order that nobody
// has looked for, and Rabenseifner's, whose ranks are in their own order.
Json compare_orders(const char* machine, const Topology& topology, const Order& bad_order) {
  const std::int64_t bytes = 256 << 20;
  const int p = topology.ranks();
  const Network network = topology.network();
  const auto busbw = [&](const PlanMaker& maker) {  // as nccl-tests count it
    return 2.0 * (p - 1) / p * static_cast<double>(bytes) /
           simulate(maker, call_of(CommOp::AllReduce, p, bytes), p, network).seconds;
  };
  const Channels rings = find_rings(topology), trees = find_chains(topology);
  const double found = busbw(all_reduce_along(rings.orders)),
               bad = busbw(all_reduce_along({bad_order}));
  const double rabenseifner = busbw(rabenseifner_all_reduce);
  const auto text_of = [](const Channels& channels) {
    return fmt::format("{} x {:g} GB/s", channels.orders.size(), channels.bytes_per_second / 1e9);
  };
  fmt::print(
      "{:<28}{:>6}  {:<15}{:<15}{:>4.0f} GB/s{:>9.1f} GB/s{:>7.1f} GB/s{:>8.2f}{:>11.1f} GB/s\n",
      machine, p, text_of(rings), text_of(trees), rings.total_bytes_per_second() / 1e9, found / 1e9,
      bad / 1e9, found / bad, rabenseifner / 1e9);
  return {{"machine", machine},
          {"ranks", p},
          {"rings", rings.orders},
          {"ring_bytes_per_second", rings.bytes_per_second},
          {"trees", trees.orders.size()},
          {"tree_bytes_per_second", trees.bytes_per_second},
          {"bad_order", bad_order},
          {"found_busbw", found},
          {"bad_busbw", bad},
          {"rabenseifner_busbw", rabenseifner}};
}

// An all-to-all of 1 MiB from each rank to each, on nodes of 8 GPUs with 8 cards: pairwise, so that
// most messages cross rails, and along the rails.
Json compare_rails(int nodes, double oversubscription) {
  Fabric fabric = hdr_fabric();
  fabric.oversubscription = oversubscription;
  const Topology topology = cluster(nvswitch_node(8), nodes, fabric);
  const Network network = topology.network();
  const int p = topology.ranks();
  const auto seconds = [&](const PlanMaker& maker) {
    return simulate(maker, call_of(CommOp::AllToAll, p, p << 20), p, network).seconds;
  };
  const double pairwise = seconds(pairwise_all_to_all);
  const double along = seconds(
      [](const Collective& c, int rank, int size) { return rail_all_to_all(c, rank, size, 8); });
  fmt::print("{:>6}{:>18}{:>14}{:>14}{:>8.2f}\n", nodes, oversubscription, time_text(pairwise),
             time_text(along), pairwise / along);
  return {{"nodes", nodes},
          {"oversubscription", oversubscription},
          {"pairwise_seconds", pairwise},
          {"rail_seconds", along}};
}

Json machines() {
  fmt::print("{:<28}{:>6}  {:<15}{:<15}{:>9}{:>14}{:>12}{:>8}{:>16}\n", "all_reduce of 256 MiB",
             "ranks", "found rings", "found trees", "promised", "found, busbw", "bad order",
             "factor", "Rabenseifner");
  Order taking_turns;  // on two nodes: every hop leaves one
  for (int l = 0; l < 8; ++l)
    for (const int node : {0, 1}) taking_turns.push_back(node * 8 + l);
  const Json orders{compare_orders("PCIe tree", pcie_tree(), {0, 4, 1, 5, 2, 6, 3, 7}),
                    compare_orders("DGX-1", dgx1(), natural_ring(8)),
                    compare_orders("NVSwitch", nvswitch_node(), natural_ring(8)),
                    compare_orders("2 NVSwitch nodes, 1 card",
                                   cluster(nvswitch_node(1), 2, hdr_fabric()), taking_turns),
                    compare_orders("2 NVSwitch nodes, 8 cards",
                                   cluster(nvswitch_node(8), 2, hdr_fabric()), natural_ring(16))};
  fmt::print(
      "\nall_to_all, 1 MiB for each rank, 8 GPUs and 8 cards a node\n{:>6}{:>18}{:>14}{:>14}"
      "{:>8}\n",
      "nodes", "oversubscription", "pairwise", "along rails", "factor");
  Json rails = Json::array();
  for (const int nodes : {2, 4, 8})
    for (const double oversubscription : {1.0, 2.0, 4.0})
      rails.push_back(compare_rails(nodes, oversubscription));
  fmt::print("\n");
  return {{"orders", orders}, {"rails", rails}};
}

Json run(const Flags& flags) {
  const Network network = network_of(flags);
  fmt::print("a = {} us a message, b = 1/({} GB/s), g = 1/({} GB/s)\n\n", flags.alpha_us,
             flags.gigabytes_per_second, flags.added_gigabytes_per_second);
  Json json{{"network",
             {{"alpha", network.link.latency_seconds},
              {"beta", network.link.seconds_per_byte},
              {"gamma", network.reduce_seconds_per_byte}}}};
  json["costs"] = costs(network);
  json["sizes"] = sizes(flags, network);
  json["scale"] = scale(flags, network);
  json["machines"] = machines();
  const int gpus[] = {8, 64, flags.quick ? 128 : 512};
  fmt::print("{}\n", to_string(nvidia_table(gpus)));
  json["trees"] = trees(8);
  json["deadlock"] = deadlock();
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::measuring_program(
      argc, argv,
      "What collectives cost, by formula and followed step by step, and which to choose.",
      [&](aisc::CommandLine& line) {
        line.number("--ranks", flags.ranks, 2, 4096, "of the table over sizes");
        line.number("--alpha", flags.alpha_us, 1e-6, 1e6, "microseconds of a message");
        line.number("--beta", flags.gigabytes_per_second, 1e-6, 1e6, "GB/s of a link");
        line.number("--gamma", flags.added_gigabytes_per_second, 1e-6, 1e6,
                    "GB/s that a rank adds");
        line.number("--most-messages", flags.most_messages, 1e3, 1e9,
                    "of a plan that is followed step by step; each takes 300 bytes of memory");
        line.given("--quick", flags.quick, "follows short plans only: shows that it works");
      },
      [&] {
        if (flags.quick) flags.most_messages = std::min(flags.most_messages, 1e4);
        return aisc::run(flags);
      });
}
