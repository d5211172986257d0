#include "common/model/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/core/error.h"
#include "common/core/system/files.h"

namespace aisc {

namespace embedded {  // aisc_embed() in cmake/targets.cmake makes it
std::string machines_json();
}

namespace {

using Json = nlohmann::ordered_json;

constexpr double kMost = 1e18;  // of any figure: bytes fit into an integer
constexpr double kMostDevices = 1e6;
constexpr DType kFloating[] = {DType::F64, DType::F32, DType::BF16, DType::F16};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Takes entries of one machine out of its object; what is left at the end nobody knows.
class Reader {
 public:
  Reader(Machine& machine, Json object, std::string where)
      : machine_(machine), object_(std::move(object)), where_(std::move(where)) {}

  Json take(const std::string& key) {
    if (!object_.contains(key)) wrong(key, "is missing");
    Json value = object_[key];
    object_.erase(key);
    return value;
  }
  bool has(const std::string& key) const { return object_.contains(key); }

  std::string text(const std::string& key) {
    const Json value = take(key);
    if (!value.is_string()) wrong(key, "is " + value.dump() + ", expected a text");
    return value;
  }
  // [value, source]
  double number(const std::string& key, double least = 0) { return sourced(take(key), key, least); }
  int count(const std::string& key) {
    const double value = number(key, 1);
    if (value > kMostDevices || value != std::floor(value))
      wrong(key, fmt::format("is {}, expected a whole number up to {}", value, kMostDevices));
    return static_cast<int>(value);
  }
  Curve curve(const std::string& key) {
    const Json pair = take(key);
    std::vector<std::pair<double, double>> points;
    try {
      for (const Json& point : pair.at(0)) {
        points.emplace_back(point.at(0), point.at(1));
        if (!(points.back().second > 0)) throw std::out_of_range("a share");
      }
      machine_.sources[key] = pair.at(1);
      return Curve(std::move(points));
    } catch (const std::exception&) {
      wrong(key, "is no [[[size, share], ...], source] of rising sizes and shares above 0");
    }
  }
  double sourced(const Json& pair, const std::string& key, double least) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() || !pair[1].is_string() ||
        !(pair[0].get<double>() >= least && pair[0].get<double>() <= kMost))
      wrong(key, fmt::format("is {}, expected [a number from {} to {}, its source]", pair.dump(),
                             least, kMost));
    machine_.sources[key] = pair[1];
    return pair[0];
  }
  void end() const {
    if (!object_.empty()) wrong(object_.begin().key(), "is unknown");
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& what) const {
    fail(fmt::format("machine {}: {} {}", where_, key, what));
  }

 private:
  Machine& machine_;
  Json object_;
  const std::string where_;
};

Machine parse(const std::string& name, const Json& object, const std::string& where) {
  Machine m;
  m.name = name;
  if (!object.is_object()) fail(fmt::format("machine {}: found no JSON object", where));
  Reader reader(m, object, where);
  m.says = reader.text("says");
  const Json rates = reader.take("flops");
  if (!rates.is_object()) reader.wrong("flops", "is no object of types");
  for (const auto& [name_of_type, pair] : rates.items()) {
    const std::string& type = name_of_type;  // clang 14 captures no structured binding
    const auto dtype = std::find_if(std::begin(kFloating), std::end(kFloating),
                                    [&](DType d) { return lower(name_of(d)) == type; });
    if (dtype == std::end(kFloating)) reader.wrong("flops", "has a type \"" + type + "\"");
    m.flops[*dtype] = reader.sourced(pair, "flops " + type, 1);
  }
  m.vector_flops = reader.number("vector_flops", 1);
  m.memory_bandwidth = reader.number("memory_bandwidth", 1);
  m.capacity = reader.number("capacity");
  m.launch_seconds = reader.number("launch_seconds");
  const auto link = [&](const std::string& what) {
    return Link{reader.number(what + "_latency"), 1 / reader.number(what + "_link", 1)};
  };
  m.host_link = link("host");
  m.node_link = link("node");
  m.card_link = link("card");
  m.ranks_per_node = reader.count("ranks_per_node");
  m.cards_per_node = reader.count("cards_per_node");
  m.nodes = reader.count("nodes");
  // A file of doctor's has none: a processor is its own host.
  m.host_bandwidth = reader.has("host_bandwidth") ? reader.number("host_bandwidth", 1)
                                                  : m.memory_bandwidth * m.ranks_per_node;
  m.host_capacity = reader.has("host_capacity") ? reader.number("host_capacity") : 0;
  m.product_share = reader.curve("product_share");
  m.move_share = reader.curve("move_share");
  const Json slower = reader.has("slower") ? reader.take("slower") : Json::object();
  for (const auto& [operation, pair] : slower.items())
    m.slower[operation] = reader.sourced(pair, "slower " + operation, 0);
  const Json notes = reader.has("notes") ? reader.take("notes") : Json::array();
  for (const Json& note : notes) {
    if (!note.is_string()) reader.wrong("notes", "has " + note.dump() + ", expected texts");
    m.notes.push_back(note);
  }
  if (reader.has("achieved")) m.achieved = reader.number("achieved", 1);
  reader.end();
  return m;
}

// What a machine leaves out it has from the one that it is like.
Json whole(const Json& all, const std::string& name) {
  Json object = all.at(name);
  if (!object.contains("like")) return object;
  Json base = whole(all, object["like"]);
  base.erase("notes");
  object.erase("like");
  base.update(object);
  return base;
}

}  // namespace

Curve::Curve(std::vector<std::pair<double, double>> points) : points_(std::move(points)) {
  for (std::size_t i = 0; i < points_.size(); ++i)
    if (!(points_[i].first > (i == 0 ? 0 : points_[i - 1].first)))
      fail(fmt::format("a curve's sizes must rise from above 0, found {}", points_[i].first));
}

double Curve::at(double size) const {
  if (points_.empty()) return 1;
  const auto right = std::find_if(points_.begin(), points_.end(),
                                  [&](const auto& point) { return point.first >= size; });
  if (right == points_.begin()) return points_.front().second;
  if (right == points_.end()) return points_.back().second;
  const auto left = right - 1;
  const double way = std::log(size / left->first) / std::log(right->first / left->first);
  return left->second + way * (right->second - left->second);
}

double Machine::peak(DType dtype) const {
  const auto found = flops.find(dtype);
  if (found != flops.end()) return found->second;
  std::string types;
  for (const auto& [type, rate] : flops)
    types += (types.empty() ? "" : ", ") + lower(name_of(type));
  fail(fmt::format("machine {}: nothing is known of products in {}, only in {}", name,
                   lower(name_of(dtype)), types));
}

double Machine::seconds(const OpCost& cost) const {
  const double rate = cost.product ? peak(cost.dtype) * product_share.at(cost.flops) : vector_flops;
  const double moved = cost.bytes / (memory_bandwidth * move_share.at(cost.bytes));
  const auto factor = slower.find(cost.operation);
  return launch_seconds +
         std::max(cost.flops / rate, moved) * (factor == slower.end() ? 1 : factor->second);
}

Network Machine::network(int ranks) const {
  const std::int64_t most = std::int64_t{ranks_per_node} * nodes;
  if (ranks > most)
    fail(fmt::format("machine {}: {} ranks, it has {} nodes of {}: {}", name, ranks, nodes,
                     ranks_per_node, most));
  Network network;
  network.link = node_link;
  network.reduce_seconds_per_byte = 3 / memory_bandwidth;  // two are read, one is written
  network.ranks_per_node = ranks_per_node;
  network.card = card_link;
  network.cards_per_node = cards_per_node;
  return network;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  const Json all = Json::parse(embedded::machines_json());
  for (const auto& [name, object] : all.items()) names.push_back(name);
  return names;
}

Machine find_machine(const std::string& name_or_file) {
  const Json all = Json::parse(embedded::machines_json());
  if (all.contains(name_or_file))
    return parse(name_or_file, whole(all, name_or_file), name_or_file);
  if (!std::filesystem::exists(name_or_file))
    fail(
        fmt::format("machine \"{}\" is not known, expected {}, or a file that ./aisc doctor "
                    "--profile wrote",
                    name_or_file, fmt::join(machine_names(), ", ")));
  Json object = Json::parse(read_file(name_or_file), nullptr, false);
  const bool named = object.is_object() && object.contains("name") && object["name"].is_string();
  const std::string name = named ? object["name"].get<std::string>() : name_or_file;
  if (named) object.erase("name");
  return parse(name, object, name_or_file);
}

std::string describe(const Machine& m) {
  std::string text = fmt::format("{}: {}\n", m.name, m.says);
  const auto line = [&](const std::string& what, const std::string& figure,
                        const std::string& source) {
    text += fmt::format("  {:<26}{:>14}  {}\n", what, figure, source);
  };
  const auto of = [&](const char* key) { return m.sources.at(key); };
  for (const auto& [type, rate] : m.flops)
    line("products " + lower(name_of(type)), fmt::format("{:.4g} TFLOP/s", rate / 1e12),
         m.sources.at("flops " + lower(name_of(type))));
  line("other arithmetic", fmt::format("{:.4g} TFLOP/s", m.vector_flops / 1e12),
       of("vector_flops"));
  line("memory", fmt::format("{:.4g} GB/s", m.memory_bandwidth / 1e9), of("memory_bandwidth"));
  line("capacity", fmt::format("{:.4g} GB", m.capacity / 1e9), of("capacity"));
  line("an operation", fmt::format("{:.3g} us", m.launch_seconds * 1e6), of("launch_seconds"));
  const auto lines = [&](const std::string& what, const Link& link, const std::string& key) {
    line(what, fmt::format("{:.4g} GB/s", 1e-9 / link.seconds_per_byte),
         of((key + "_link").c_str()));
    line("", fmt::format("{:.3g} us", link.latency_seconds * 1e6), of((key + "_latency").c_str()));
  };
  lines("to the host", m.host_link, "host");
  if (m.sources.contains("host_bandwidth"))
    line("a host's memory", fmt::format("{:.4g} GB/s", m.host_bandwidth / 1e9),
         of("host_bandwidth"));
  if (m.sources.contains("host_capacity"))
    line("", fmt::format("{:.4g} GB", m.host_capacity / 1e9), of("host_capacity"));
  lines("inside a node", m.node_link, "node");
  lines("a network card", m.card_link, "card");
  line("ranks of a node", fmt::format("{}", m.ranks_per_node), of("ranks_per_node"));
  line("cards of a node", fmt::format("{}", m.cards_per_node), of("cards_per_node"));
  line("nodes", fmt::format("{}", m.nodes), of("nodes"));
  const auto curve = [&](const char* what, const Curve& shares, const char* unit, const char* key) {
    for (const auto& [size, share] : shares.points())
      line(fmt::format("{} {:.2g} {}", what, size, unit), fmt::format("{:.3g}", share), of(key));
  };
  curve("share at", m.product_share, "FLOP", "product_share");
  curve("share at", m.move_share, "B", "move_share");
  for (const auto& [operation, factor] : m.slower)
    line(operation, fmt::format("{:.3g} times", factor), m.sources.at("slower " + operation));
  text += "  so\n";
  for (const auto& [type, rate] : m.flops)
    line("balance, " + lower(name_of(type)),
         fmt::format("{:.4g} FLOP/B", rate / m.memory_bandwidth),
         "fewer FLOPs for each byte of memory, and memory decides");
  const double out = m.cards_per_node / m.card_link.seconds_per_byte;
  line("a node's network", fmt::format("{:.4g} GB/s", out / 1e9), "all its cards together");
  line("narrower by", fmt::format("{:.3g}", m.ranks_per_node / m.node_link.seconds_per_byte / out),
       "than the links of its ranks together");
  if (m.achieved > 0) {
    constexpr double kGpt3 = 3.14e23, kDay = 86400, kYear = 365.25 * kDay;  // Brown et al., 2020
    const double alone = kGpt3 / m.achieved, node = alone / m.ranks_per_node;
    line("GPT-3 on one", fmt::format("{:.4g} years", alone / kYear),
         fmt::format("3.14e23 FLOPs at {:.4g} TFLOP/s: {}", m.achieved / 1e12, of("achieved")));
    line("on a node", fmt::format("{:.3g} years", node / kYear), "as fast as all its devices");
    line("on all nodes", fmt::format("{:.3g} days", node / m.nodes / kDay), "as fast as all");
  }
  for (const std::string& note : m.notes) text += "  note: " + note + "\n";
  return text;
}

}  // namespace aisc
