// Which flags a tuner changes.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "11_gpt_3d/tuner.h"
#include "common/core/error.h"

namespace aisc {
namespace {

// Ranks that share sequences, and those of a group of shards: a node's.
constexpr int kMostShared = 8;

std::vector<std::string> divisors(std::int64_t of, std::int64_t also) {
  std::vector<std::string> found;
  for (std::int64_t d = 1; d <= of; ++d)
    if (of % d == 0 && also % d == 0) found.push_back(std::to_string(d));
  return found;
}

// Those that the command line has not given, with more than one value.
class Adds {
 public:
  explicit Adds(const Options& options) : options_(options) {}
  void operator()(const std::string& name, std::vector<std::string> values) {
    if (values.size() > 1 && !options_.given.contains(name))
      space_.push_back({name, std::move(values)});
  }
  TuningSpace space() && { return std::move(space_); }

 private:
  const Options& options_;
  TuningSpace space_;
};

}  // namespace

TuningSpace parse_space(const std::string& text) {
  TuningSpace space;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    TunedFlag flag{word.substr(0, at), {}};
    std::istringstream values(at == std::string::npos ? "" : word.substr(at + 1));
    for (std::string value; std::getline(values, value, ',');) flag.values.push_back(value);
    if (flag.name.empty() || flag.values.empty())
      fail(fmt::format("--space: found \"{}\", expected FLAG=VALUE,VALUE", word));
    for (const TunedFlag& other : space)
      if (other.name == flag.name) fail(fmt::format("--space: {} stands twice", flag.name));
    space.push_back(std::move(flag));
  }
  if (space.empty()) fail("--space: found nothing, expected FLAG=VALUE,VALUE");
  return space;
}

TuningSpace usual_space(const Options& o) {
  const GptConfig& model = o.train.model;
  Adds add(o);
  add("tp", divisors(o.ranks, model.heads));
  add("pp", divisors(o.ranks, model.layers));
  std::vector<std::string> parts;
  for (std::int64_t p = 1; p <= o.train.batch && p <= 64; p *= 2)
    parts.push_back(std::to_string(p));
  add("micro-batches", parts);
  if (o.ranks > 1) add("zero", {"0", "1", "2", "3"});
  add("recompute", {"none", "block"});
  return std::move(add).space();
}

TuningSpace usual_moves(const Options& o) {
  Adds add(o);
  const bool has_stages = o.ranks > 1 && o.train.model.layers > 1;
  add("sp", {"false", "true"});
  if (has_stages)
    add("schedule", {"1f1b", "zb-h1", "interleaved --chunks=2", "interleaved --chunks=4"});
  add("cp", divisors(std::min(o.ranks, kMostShared), o.train.model.context));
  if (o.train.model.experts.count > 0) add("ep", divisors(o.ranks, o.train.model.experts.count));
  std::vector<std::string> groups{"0"};
  for (int ranks = 2; ranks < o.ranks && ranks <= kMostShared; ranks *= 2)
    groups.push_back(std::to_string(ranks));
  add("zero-group", groups);
  add("offload", {"none", "optimizer", "weights", "activations"});
  return std::move(add).space();
}

}  // namespace aisc
