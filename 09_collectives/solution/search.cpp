// Depth first through the GPUs, again and again, until no wire has room for another channel.
#include "09_collectives/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

using Kind = Vertex::Kind;
constexpr double kRounding = 1e-9;  // rates are quotients: a third three times is one

template <class T>
decltype(auto) item(T& values, int i) {
  return values[static_cast<std::size_t>(i)];
}

enum class ChannelKind { Ring, Chain };
// What a way between two GPUs of a node may pass at the most.
enum class Nearness { NvLink, PcieSwitch, Cpu, TwoCpus };

// Throws Error where they differ.
int gpus_per_node(const Topology& topology) {
  std::vector<int> gpus(static_cast<std::size_t>(topology.nodes()));
  for (int r = 0; r < topology.ranks(); ++r) ++item(gpus, topology.gpu(r).node);
  for (int node = 0; node < topology.nodes(); ++node)
    if (item(gpus, node) != gpus[0])
      fail(fmt::format("search: {} GPUs in node 0, {} in node {}, equally many expected", gpus[0],
                       item(gpus, node), node));
  return gpus[0];
}

// The GPUs of a node by their number, and the ways between them. Paths are written in numbers.
class Machine {
 public:
  // `topology` is kept.
  explicit Machine(const Topology& topology)
      : topology_(topology),
        nodes_(topology.nodes()),
        gpus_(gpus_per_node(topology)),
        network_(topology.network()),
        rank_of_(static_cast<std::size_t>(topology.ranks())) {
    for (int r = 0; r < topology.ranks(); ++r)
      item(rank_of_, topology.gpu(r).node * gpus_ + topology.gpu(r).number) = r;
  }

  int nodes() const { return nodes_; }
  int gpus() const { return gpus_; }
  int wires() const { return static_cast<int>(network_.wire_seconds_per_byte.size()); }
  const Topology& topology() const { return topology_; }

  const Network::Route& way(int from_node, int from, int to_node, int to) const {
    return item(network_.routes, rank(from_node, from) * topology_.ranks() + rank(to_node, to));
  }
  const Network::Route& way(int from, int to) const { return way(0, from, 0, to); }

  Nearness nearness_of(const Network::Route& way) const {
    int cpus = 0, switches = 0;
    for (const int wire : way.wires) {
      const Kind kind = item(topology_.vertices(), topology_.ends_of(wire).second).kind;
      cpus += kind == Kind::Cpu;
      switches += kind == Kind::PcieSwitch;
    }
    return cpus > 1       ? Nearness::TwoCpus
           : cpus == 1    ? Nearness::Cpu
           : switches > 0 ? Nearness::PcieSwitch
                          : Nearness::NvLink;
  }

  bool is_open(int from, int to, Nearness nearness) const {
    return from != to && nearness_of(way(from, to)) <= nearness;
  }

  // Those that channels may use.
  std::set<int> wires_in(Nearness nearness) const {
    std::set<int> wires;
    for (int from = 0; from < gpus_; ++from)
      for (int to = 0; to < gpus_; ++to) {
        if (is_open(from, to, nearness)) add_to(wires, way(from, to));
        for (int node = 1; node < nodes_; ++node) {
          add_to(wires, way(0, from, node, to));
          add_to(wires, way(node, from, 0, to));
        }
      }
    return wires;
  }

  // The path through every node, one after the other.
  Order order_of(const std::vector<int>& path) const {
    Order order;
    for (int node = 0; node < nodes_; ++node)
      for (const int gpu : path) order.push_back(rank(node, gpu));
    return order;
  }

 private:
  int rank(int node, int gpu) const { return item(rank_of_, node * gpus_ + gpu); }
  static void add_to(std::set<int>& wires, const Network::Route& way) {
    wires.insert(way.wires.begin(), way.wires.end());
  }

  const Topology& topology_;
  const int nodes_, gpus_;
  const Network network_;
  std::vector<int> rank_of_;
};

using Path = std::vector<int>;

// Packs channels of one rate. All nodes are alike: what a path takes within a node is counted in
// node 0, what it takes between nodes everywhere.
class Packing {
 public:
  Packing(const Machine& machine, ChannelKind kind, Nearness nearness, double rate,
          const SearchLimits& limits)
      : machine_(machine),
        kind_(kind),
        wires_(machine.wires_in(nearness)),
        steps_(limits.steps),
        room_(static_cast<std::size_t>(machine.wires())) {
    for (const int wire : wires_)
      item(room_, wire) = static_cast<int>(
          std::min(machine.topology().bytes_per_second(wire) / rate + kRounding, kMostRoom));
    for (int from = 0; from < machine.gpus(); ++from) {
      std::vector<int>& next = next_.emplace_back();
      for (int i = 1; i < machine.gpus(); ++i)
        if (const int to = (from + i) % machine.gpus(); machine.is_open(from, to, nearness))
          next.push_back(to);
      std::stable_sort(next.begin(), next.end(), [&](int a, int b) {
        return machine.topology().is_better(machine.way(from, a).wires, machine.way(from, b).wires);
      });
    }
    if (machine.nodes() > 1) sort_ends();
    most_ = std::min(limits.most_channels, bound());
  }

  // No packing has more channels.
  int most() const { return most_; }
  const std::vector<Path>& run() {
    add_channel();
    return best_;
  }

 private:
  static constexpr double kMostRoom = 1 << 20;
  static constexpr int kTreeMessages = 2;  // see start()

  // First and last GPU of a path through a node, where the way to the next node is best first.
  void sort_ends() {
    for (int first = 0; first < machine_.gpus(); ++first)
      for (int last = 0; last < machine_.gpus(); ++last)
        if (first != last || machine_.gpus() == 1) ends_.emplace_back(first, last);
    std::stable_sort(ends_.begin(), ends_.end(), [&](const auto& a, const auto& b) {
      return machine_.topology().is_better(machine_.way(0, a.second, 1, a.first).wires,
                                           machine_.way(0, b.second, 1, b.first).wires);
    });
  }

  struct Walk {
    Path path;
    std::vector<bool> used{};
    int last = -1;                // where it has to end; -1: anywhere
    const Path* along = nullptr;  // this path only
  };

  // Takes room for one channel on several ways, calls `then`, and gives it back; without room on
  // all of them it does nothing.
  template <class Then>
  void with(std::span<const Network::Route* const> ways, Then&& then) {
    bool has_room = true;
    // Room may fall below zero on a wire that two of the ways share: it is given back all the same.
    for (const Network::Route* way : ways)
      for (const int wire : way->wires) has_room = --item(room_, wire) >= 0 && has_room;
    if (has_room) then();
    for (const Network::Route* way : ways)
      for (const int wire : way->wires) ++item(room_, wire);
  }
  template <class Then>
  void with_hop(int from, int to, Then&& then) {
    const Network::Route* there_and_back[] = {&machine_.way(from, to), &machine_.way(to, from)};
    with(std::span(there_and_back).first(kind_ == ChannelKind::Chain ? 2 : 1), then);
  }

  // A path that ends where it began; in a cluster it goes on to the next node.
  bool is_closed() const { return kind_ == ChannelKind::Ring && machine_.nodes() == 1; }
  bool is_over() const { return steps_ <= 0 || static_cast<int>(best_.size()) >= most_; }

  void add_channel() {
    if (now_.size() > best_.size()) best_ = now_;
    if (is_over() || static_cast<int>(now_.size()) + bound() <= static_cast<int>(best_.size()))
      return;
    if (!now_.empty()) {  // most machines are the same in both directions
      const Path same = now_.back();
      Path back(same.rbegin(), same.rend());
      if (is_closed()) std::rotate(back.begin(), back.end() - 1, back.end());
      start({.path = {back.front()}, .last = back.back(), .along = &back});
      start({.path = {same.front()}, .last = same.back(), .along = &same});
    }
    if (machine_.nodes() > 1 && kind_ == ChannelKind::Ring) {
      for (const auto& [first, last] : ends_) start({.path = {first}, .last = last});
    } else if (is_closed()) {
      start({.path = {0}});  // every ring comes through GPU 0
    } else {
      for (int first = 0; first < machine_.gpus(); ++first) start({.path = {first}});
    }
  }

  void start(Walk walk) {
    --steps_;
    walk.used.resize(static_cast<std::size_t>(machine_.gpus()));
    item(walk.used, walk.path.front()) = true;
    const int nodes = machine_.nodes();
    if (nodes == 1) return go_on(walk);
    // From each node to the next: from the end of a ring's path, and once; from the head of a
    // chain, and twice, which is what the two trees over the nodes send and receive at each.
    const bool is_ring = kind_ == ChannelKind::Ring;
    const int from = is_ring ? walk.last : walk.path.front();
    std::vector<const Network::Route*> ways;
    for (int node = 0; node < nodes; ++node)
      for (int times = 0; times < (is_ring ? 1 : kTreeMessages); ++times)
        ways.push_back(&machine_.way(node, from, (node + 1) % nodes, walk.path.front()));
    with(ways, [&] { go_on(walk); });
  }

  void go_on(Walk& walk) {
    if (is_over()) return;
    --steps_;
    const int here = walk.path.back(), length = static_cast<int>(walk.path.size());
    if (length == machine_.gpus()) {
      const auto complete = [&] {
        now_.push_back(walk.path);
        add_channel();
        now_.pop_back();
      };
      if (is_closed())
        with_hop(here, walk.path.front(), complete);
      else
        complete();
      return;
    }
    // The best way first. Room is taken for a hop while all paths behind it are tried, and the GPU
    // is marked as used; afterwards both are as before.
    for (const int next : item(next_, here)) {
      const bool is_end = next == walk.last && length + 1 < machine_.gpus();
      const bool is_off = walk.along && (*walk.along)[walk.path.size()] != next;
      if (item(walk.used, next) || is_end || is_off) continue;
      with_hop(here, next, [&] {
        walk.path.push_back(next);
        item(walk.used, next) = true;
        go_on(walk);
        item(walk.used, next) = false;
        walk.path.pop_back();
      });
    }
  }

  // No more channels than that have room: each leaves every GPU, and enters it, a chain twice where
  // it goes on; and in a cluster each enters a node and leaves it.
  int bound() const {
    const Topology& topology = machine_.topology();
    std::vector<int> out(topology.vertices().size()), in(out.size());
    int into_node = 0, out_of_node = 0;
    for (const int wire : wires_) {
      const auto [from, to] = topology.ends_of(wire);
      item(out, from) += item(room_, wire);
      item(in, to) += item(room_, wire);
      const int from_node = item(topology.vertices(), from).node;
      const int to_node = item(topology.vertices(), to).node;
      if (from_node != 0 && to_node == 0) into_node += item(room_, wire);
      if (from_node == 0 && to_node != 0) out_of_node += item(room_, wire);
    }
    int least = static_cast<int>(kMostRoom), sum = 0;
    for (int r = 0; r < topology.ranks(); ++r) {
      if (topology.gpu(r).node != 0) continue;
      const int room = std::min(item(out, topology.gpu_of(r)), item(in, topology.gpu_of(r)));
      least = std::min(least, room);
      sum += room;
    }
    const int hops = kind_ == ChannelKind::Ring ? machine_.gpus() : 2 * (machine_.gpus() - 1);
    least = std::min(least, sum / hops);
    if (machine_.nodes() == 1) return least;
    const int room = std::min(into_node, out_of_node);
    return std::min(least, kind_ == ChannelKind::Ring ? room : room / kTreeMessages);
  }

  const Machine& machine_;
  const ChannelKind kind_;
  const std::set<int> wires_;
  std::int64_t steps_;
  std::vector<int> room_;               // of each wire, in channels
  std::vector<std::vector<int>> next_;  // of each GPU, the best first
  std::vector<std::pair<int, int>> ends_;
  int most_ = 0;
  std::vector<Path> now_, best_;
};

// The rates of the wires, and parts of them, the highest first.
std::set<double, std::greater<>> rates_of(const Machine& machine, Nearness nearness) {
  constexpr int kParts = 4;
  std::set<double, std::greater<>> rates;
  for (const int wire : machine.wires_in(nearness))
    for (int parts = 1; parts <= kParts; ++parts)
      rates.insert(machine.topology().bytes_per_second(wire) / parts);
  return rates;
}

Channels search(const Topology& topology, ChannelKind kind, const SearchLimits& limits) {
  if (topology.ranks() < 2)
    fail(fmt::format("search: {} ranks, at least 2 expected", topology.ranks()));
  const Machine machine(topology);
  for (const Nearness nearness :
       {Nearness::NvLink, Nearness::PcieSwitch, Nearness::Cpu, Nearness::TwoCpus}) {
    Channels best;
    // From the highest rate down: a lower one is only tried if its bound promises more together.
    for (const double rate : rates_of(machine, nearness)) {
      const double enough = best.total_bytes_per_second() * (1 + kRounding);
      Packing packing(machine, kind, nearness, rate, limits);
      if (packing.most() * rate <= enough) continue;
      const std::vector<Path>& paths = packing.run();
      if (static_cast<double>(paths.size()) * rate <= enough) continue;
      best = {.bytes_per_second = rate};
      for (const Path& path : paths) best.orders.push_back(machine.order_of(path));
    }
    if (!best.orders.empty()) return best;
  }
  fail(fmt::format("search: no channel through {} GPUs found in {} steps", topology.ranks(),
                   limits.steps));
}

}  // namespace

Channels find_rings(const Topology& topology, const SearchLimits& limits) {
  return search(topology, ChannelKind::Ring, limits);
}

Channels find_chains(const Topology& topology, const SearchLimits& limits) {
  return search(topology, ChannelKind::Chain, limits);
}

std::vector<int> crossings(const Topology& topology, std::span<const Order> rings) {
  const Network network = topology.network();
  std::vector<int> crossings(network.wire_seconds_per_byte.size());
  for (const Order& ring : rings)
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const int from = ring[i], to = ring[(i + 1) % ring.size()];
      for (const int rank : {from, to})
        if (rank < 0 || rank >= topology.ranks())
          fail(fmt::format("crossings: rank {}, there are {}", rank, topology.ranks()));
      for (const int wire : item(network.routes, from * topology.ranks() + to).wires)
        ++item(crossings, wire);
    }
  return crossings;
}

double ring_bytes_per_second(const Topology& topology, std::span<const Order> rings) {
  const std::vector<int> times = crossings(topology, rings);
  double least = 0;
  for (int wire = 0; wire < static_cast<int>(times.size()); ++wire) {
    if (item(times, wire) == 0) continue;
    const double rate = topology.bytes_per_second(wire) / item(times, wire);
    if (least == 0 || rate < least) least = rate;
  }
  return least;
}

}  // namespace aisc
