// The graph, and the ways through it.
#include "09_collectives/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "common/core/error.h"

namespace aisc {
namespace {

using Kind = Vertex::Kind;
using Way = std::vector<int>;  // wires

template <class T>
auto& at(T& values, int i) {
  return values[static_cast<std::size_t>(i)];
}

const char* name_of_kind(Kind kind) {
  constexpr const char* kNames[] = {"GPU",  "PCIe switch", "CPU",  "NVSwitch",
                                    "card", "rail switch", "spine"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool passes_on(Kind kind) { return kind != Kind::Gpu && kind != Kind::Card; }

}  // namespace

int Topology::add(Kind kind, int node) {
  const auto same = std::count_if(vertices_.begin(), vertices_.end(), [&](const Vertex& v) {
    return v.kind == kind && v.node == node;
  });
  const int vertex = static_cast<int>(vertices_.size());
  vertices_.push_back({kind, node, static_cast<int>(same)});
  wires_from_.emplace_back();
  if (kind == Kind::Gpu) gpus_.push_back(vertex);
  return vertex;
}

void Topology::connect(int a, int b, const Speed& speed) {
  const int count = static_cast<int>(vertices_.size());
  for (const int end : {a, b})
    if (end < 0 || end >= count)
      fail(fmt::format("topology: a cable to vertex {}, there are {}", end, count));
  if (a == b) fail(fmt::format("topology: a cable from {} to itself", name_of(a)));
  if (!(speed.bytes_per_second > 0) || speed.latency_seconds < 0)
    fail(fmt::format("topology: a cable of {} bytes/s and {} s from {} to {}",
                     speed.bytes_per_second, speed.latency_seconds, name_of(a), name_of(b)));
  const int cable = static_cast<int>(cables_.size());
  cables_.push_back({a, b, speed});
  at(wires_from_, a).push_back(2 * cable);
  at(wires_from_, b).push_back(2 * cable + 1);
}

int Topology::nodes() const {
  int last = -1;
  for (const Vertex& vertex : vertices_) last = std::max(last, vertex.node);
  return last + 1;
}

std::pair<int, int> Topology::ends_of(int wire) const {
  const Cable& cable = at(cables_, wire / 2);
  return wire % 2 == 0 ? std::pair(cable.a, cable.b) : std::pair(cable.b, cable.a);
}

double Topology::bytes_per_second(int wire) const {
  return at(cables_, wire / 2).speed.bytes_per_second;
}

bool Topology::is_better(std::span<const int> a, std::span<const int> b) const {
  const auto carries = [&](std::span<const int> way) {
    double least = bytes_per_second(way.front());
    for (const int wire : way) least = std::min(least, bytes_per_second(wire));
    return least;
  };
  const double carries_a = carries(a), carries_b = carries(b);
  return carries_a > carries_b || (carries_a == carries_b && a.size() < b.size());
}

Topology Topology::with_ranks(std::span<const int> order) const {
  const std::set<int> all(order.begin(), order.end());
  if (static_cast<int>(order.size()) != ranks() || all.size() != order.size() ||
      (!all.empty() && (*all.begin() != 0 || *all.rbegin() != ranks() - 1)))
    fail(fmt::format("topology: an order of {} ranks ({} different), each of {} once expected",
                     order.size(), all.size(), ranks()));
  Topology other = *this;
  for (std::size_t r = 0; r < order.size(); ++r) other.gpus_[r] = gpu_of(order[r]);
  return other;
}

std::string Topology::name_of(int vertex) const {
  const Vertex& v = at(vertices_, vertex);
  const std::string node = nodes() > 1 && v.node >= 0 ? fmt::format("node {} ", v.node) : "";
  if (v.kind == Kind::Spine || v.kind == Kind::NvSwitch) return node + name_of_kind(v.kind);
  return fmt::format("{}{} {}", node, name_of_kind(v.kind), v.number);
}

std::string Topology::to_string(const Network::Route& way) const {
  std::string text;
  for (const int wire : way.wires) {
    const auto [from, to] = ends_of(wire);
    if (text.empty()) text = name_of(from);
    text += " > " + name_of(to);
  }
  return text;
}

// Finds the ways of one topology, once for all pairs.
class WayFinder {
 public:
  explicit WayFinder(const Topology& topology)
      : topology_(topology), vertices_(topology.vertices_), ways_(vertices_.size()) {
    for (const Cable& cable : topology.cables_) speeds_.insert(cable.speed.bytes_per_second);
    for (int v = 0; v < static_cast<int>(vertices_.size()); ++v)
      if (!passes_on(at(vertices_, v).kind)) find_ways_from(v);
    for (const int gpu : topology.gpus_) find_cards_near(gpu);
  }

  // Throws Error where there is none.
  Way between(int from, int to) const {
    Way best;
    if (at(vertices_, from).node == at(vertices_, to).node) {
      if (const Way* way = find(from, to)) best = *way;
    } else {
      for (const int out : cards_near_.at(from))
        for (const int in : cards_near_.at(to))
          if (const Way* middle = find(out, in)) {
            Way whole = *find(from, out);
            for (const Way* part : {middle, find(in, to)})
              whole.insert(whole.end(), part->begin(), part->end());
            if (best.empty() || topology_.is_better(whole, best)) best = std::move(whole);
          }
    }
    if (best.empty())
      fail(fmt::format("topology: no way from {} to {}", topology_.name_of(from),
                       topology_.name_of(to)));
    return best;
  }

 private:
  const Way* find(int from, int to) const {
    const auto found = at(ways_, from).find(to);
    return found == at(ways_, from).end() ? nullptr : &found->second;
  }

  // To every GPU and card. Looks first at the fastest cables alone, then at the next ones too, and
  // so on: what is reached for the first time is reached by a way that carries most. Going outward
  // step by step, it finds the shortest of these.
  void find_ways_from(int from) {
    std::map<int, Way>& ways = at(ways_, from);
    for (const double speed : speeds_) {
      std::map<int, int> arrived_by;  // the wire
      std::vector<int> reached{from};
      for (std::size_t next = 0; next < reached.size(); ++next) {
        const int here = reached[next];
        if (here != from && !passes_on(at(vertices_, here).kind)) continue;
        for (const int wire : at(topology_.wires_from_, here)) {
          const int there = topology_.ends_of(wire).second;
          if (topology_.bytes_per_second(wire) < speed || there == from) continue;
          if (arrived_by.emplace(there, wire).second) reached.push_back(there);
        }
      }
      for (const int to : reached) {
        if (to == from || passes_on(at(vertices_, to).kind) || ways.count(to) > 0) continue;
        Way& way = ways[to];
        for (int v = to; v != from; v = topology_.ends_of(way.back()).first)
          way.push_back(arrived_by.at(v));
        std::reverse(way.begin(), way.end());
      }
    }
  }

  // The nearest cards of its node; the GPU's own place among them comes first.
  void find_cards_near(int gpu) {
    std::vector<int>& cards = cards_near_[gpu];
    for (const auto& [card, way] : at(ways_, gpu)) {
      if (at(vertices_, card).kind != Kind::Card) continue;
      const Way* nearest = cards.empty() ? nullptr : find(gpu, cards.front());
      if (nearest && topology_.is_better(way, *nearest)) cards.clear();
      if (cards.empty() || !topology_.is_better(*nearest, way)) cards.push_back(card);
    }
    if (cards.empty()) return;
    const int place = at(vertices_, gpu).number % static_cast<int>(cards.size());
    std::rotate(cards.begin(), cards.begin() + place, cards.end());
  }

  const Topology& topology_;
  const std::vector<Vertex>& vertices_;
  std::set<double, std::greater<>> speeds_;
  std::vector<std::map<int, Way>> ways_;  // from each vertex to each; none: empty
  std::map<int, std::vector<int>> cards_near_;
};

Network Topology::network() const {
  Network network;
  for (const Cable& cable : cables_)
    network.wire_seconds_per_byte.insert(network.wire_seconds_per_byte.end(), 2,
                                         1 / cable.speed.bytes_per_second);
  const WayFinder ways(*this);
  for (const int from : gpus_)
    for (const int to : gpus_) {
      Network::Route& route = network.routes.emplace_back();
      if (from == to) continue;
      route.wires = ways.between(from, to);
      for (const int wire : route.wires)
        route.latency_seconds += at(cables_, wire / 2).speed.latency_seconds;
    }
  return network;
}

}  // namespace aisc
