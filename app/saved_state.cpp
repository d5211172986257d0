#include "app/saved_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/agreement.h"
#include "app/whole_model.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

using nlohmann::json;

// A tensor of the file, and where in it lies what this rank has.
struct SavedTensor {
  SafetensorsSpec tensor;       // the whole
  View value;                   // this rank's
  std::vector<GlobalRun> runs;  // from where in `value` to where in the whole
  std::string parameter;        // whose part it is; "": it is no part
  bool is_own = false;          // this rank's alone
  bool is_written_here = false;
};

SavedTensor whole_of(const std::string& name, const View& value) {
  return {.tensor = {name, value.dtype(), value.shape()},
          .value = value,
          .runs = {{0, 0, value.count()}}};
}

// The slice of a state; null: it is of none.
const OptimizerSlice* slice_of(const Optimizer& optimizer, const Optimizer::State& state) {
  if (state.parameter)
    for (const OptimizerSlice& slice : optimizer.slices())
      if (slice.parameter == state.parameter && slice.begin == state.begin) return &slice;
  return nullptr;
}

// What this rank has, in the order of Optimizer::state(); then its own.
std::vector<SavedTensor> saved_by(int rank, const Trainer& trainer) {
  const Optimizer& optimizer = trainer.optimizer();
  std::vector<SavedTensor> all;
  for (const Optimizer::State& s : optimizer.state()) {
    const OptimizerSlice* slice = slice_of(optimizer, s);
    const std::int64_t weights = slice ? slice->weight.count() : -1;
    if (weights == s.value.count()) {
      const Shape flat{s.parameter->global_shape.count()};
      all.push_back({.tensor = {s.name, s.value.dtype(), flat},
                     .value = s.value,
                     .runs = global_runs(*s.parameter, {s.begin, s.begin + weights}),
                     .parameter = s.parameter->name,
                     .is_written_here = trainer.writes(*slice)});
    } else if (weights >= 0 && trainer.divides()) {
      fail(
          fmt::format("\"{}\" has {} numbers for the {} weights of a slice, expected one for each: "
                      "else it cannot be put together of the ranks' slices",
                      s.name, s.value.count(), weights));
    } else {
      all.push_back(whole_of(s.name, s.value));  // the same on all ranks that have it: one writes
    }
  }
  for (const Optimizer::State& s : optimizer.own_state()) {
    all.push_back(whole_of(fmt::format("{}@{}", s.name, rank), s.value));
    all.back().is_own = all.back().is_written_here = true;
  }
  return all;
}

// As it travels.
std::string packed(const std::vector<SavedTensor>& saved) {
  json list = json::array();
  for (const SavedTensor& s : saved) {
    json shape = json::array();
    for (int d = 0; d < s.tensor.shape.rank(); ++d) shape.push_back(s.tensor.shape[d]);
    list.push_back({s.tensor.name, name_of(s.tensor.dtype), shape, s.parameter, s.is_own});
  }
  return list.dump();
}

Shape shape_from(const json& extents) {
  const auto at = [&](std::size_t d) { return extents[d].get<std::int64_t>(); };
  switch (extents.size()) {
    case 0:
      return {};
    case 1:
      return {at(0)};
    case 2:
      return {at(0), at(1)};
    case 3:
      return {at(0), at(1), at(2)};
    default:
      return {at(0), at(1), at(2), at(3)};
  }
}

// The tensors of all ranks: the parameters' in the parameters' order, then what belongs to none,
// then each rank's own. The same on all ranks.
class Contents {
 public:
  void add(int rank, const std::string& texts_of_rank) {
    for (const json& s : json::parse(texts_of_rank)) {
      const SafetensorsSpec tensor{s[0].get<std::string>(), parse_dtype(s[1].get<std::string>()),
                                   shape_from(s[2])};
      const auto [known, is_new] = known_.emplace(tensor.name, tensor);
      if (!is_new && (known->second.dtype != tensor.dtype || known->second.shape != tensor.shape))
        fail(fmt::format("\"{}\" is {} {} on one rank, {} {} on another", tensor.name,
                         name_of(known->second.dtype), known->second.shape.to_string(),
                         name_of(tensor.dtype), tensor.shape.to_string()));
      if (is_new) first_[tensor.name] = rank;
      if (is_new) (s[4].get<bool>() ? own_ : of_[s[3].get<std::string>()]).push_back(tensor);
    }
  }
  std::vector<SafetensorsSpec> in_order(const std::vector<Parameter*>& parameters) {
    std::vector<SafetensorsSpec> all;
    const auto append = [&](const std::vector<SafetensorsSpec>& some) {
      all.insert(all.end(), some.begin(), some.end());
    };
    for (const Parameter* p : parameters) append(of_[p->name]);
    // Of no slice, but "NAME/..." of a parameter, in the parameters' order, whatever stage has it.
    std::vector<SafetensorsSpec>& rest = of_[""];
    auto sorted = rest.begin();
    for (const Parameter* p : parameters)
      sorted = std::stable_partition(sorted, rest.end(), [&](const SafetensorsSpec& tensor) {
        return tensor.name.starts_with(p->name + "/");
      });
    append(rest);
    append(own_);
    return all;
  }
  int first_with(const std::string& name) const { return first_.at(name); }

 private:
  std::map<std::string, SafetensorsSpec> known_;
  std::map<std::string, int> first_;                        // the lowest rank that has it
  std::map<std::string, std::vector<SafetensorsSpec>> of_;  // by parameter
  std::vector<SafetensorsSpec> own_;
};

// Whose own "NAME@3" is: 3.
std::optional<int> rank_in(const std::string& name) {
  const std::size_t at = name.rfind('@');
  if (at == std::string::npos) return {};
  int rank = 0;
  const char *begin = name.data() + at + 1, *end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, rank);
  if (error != std::errc() || stop != end || rank < 0) return {};
  return rank;
}

constexpr const char* kMaster = "/master";
constexpr const char* kNext = "/next";  // weights of updates that are a step late

// This rank's part of a tensor in the file.
void read_part(const Safetensors& file, const SavedTensor& s, Device& host) {
  const bool is_here = s.value.device().is_host();
  const Tensor copy = is_here ? Tensor() : Tensor(s.value.shape(), s.value.dtype(), host);
  const View to = is_here ? s.value : copy.view();
  for (const GlobalRun& run : s.runs)
    file.read_part(s.tensor.name, s.tensor.shape, run.global,
                   to.flat(run.local - s.runs[0].local, run.count));
  if (!is_here) s.value.device().copy(s.value, copy);
}

// What ranks have of their own fits as many ranks alone.
void require_ranks(const Safetensors& file, int ranks) {
  int found = 0;
  std::string last;
  for (const SafetensorsEntry& entry : file.entries())
    if (const auto rank = rank_in(entry.name); rank && *rank >= found) {
      found = *rank + 1;
      last = entry.name;
    }
  if (found > 0 && found != ranks)
    fail(
        fmt::format("{}: \"{}\": ranks have state of their own, and it was written by {}, expected "
                    "by {}: this optimizer goes on with as many ranks",
                    file.path(), last, found, ranks));
}

}  // namespace

void write_state(const Rank& rank, const std::string& path, const Trainer& trainer, Device& host) {
  Communicator& world = rank.world;
  std::vector<SavedTensor> mine;
  on_all_ranks(world, [&] { mine = saved_by(world.rank(), trainer); });
  Contents contents;
  int has = 0;
  for (const std::string& text : all_texts(world, packed(mine)))  // comm: what each rank has
    contents.add(has++, text);
  for (SavedTensor& s : mine)
    if (s.parameter.empty() && !s.is_own)
      s.is_written_here = contents.first_with(s.tensor.name) == world.rank();
  FileOfRanks file(world, path, contents.in_order(WholeModel(rank, trainer).store().parameters()));
  file.attempt([&](SafetensorsParts& parts) {
    for (const SavedTensor& s : mine) {
      if (!s.is_written_here) continue;
      ConstView value = s.value;
      Tensor copy;
      if (!value.device().is_host()) {
        copy = Tensor(value.shape(), value.dtype(), host);
        host.copy(copy, value);
        value = copy;
      }
      for (const GlobalRun& run : s.runs)
        parts.write(s.tensor.name, run.global, value.flat(run.local - s.runs[0].local, run.count));
    }
  });
  file.commit();
}

void read_state(const Rank& rank, const Safetensors& file, Trainer& trainer, Device& host) {
  const std::vector<SavedTensor> mine = saved_by(rank.world.rank(), trainer);
  if (std::any_of(mine.begin(), mine.end(), [](const SavedTensor& s) { return s.is_own; }))
    require_ranks(file, rank.world.size());
  for (const SavedTensor& s : mine)
    if (!s.tensor.name.ends_with(kMaster) || file.find(s.tensor.name)) read_part(file, s, host);
  const Optimizer& optimizer = trainer.optimizer();
  std::set<std::string> read;
  for (const SavedTensor& s : mine) read.insert(s.tensor.name);
  for (std::size_t i = 0; i < optimizer.slices().size(); ++i) {
    const OptimizerSlice& slice = optimizer.slices()[i];
    if (optimizer.master(i) || !slice.parameter) continue;
    const Parameter& p = *slice.parameter;
    for (const char* newest : {kMaster, kNext}) {
      const std::string name = slice.name + newest;
      if (read.contains(name) || !file.find(name)) continue;
      read_part(file,
                {.tensor = {name, DType::F32, {p.global_shape.count()}},
                 .value = slice.weight,
                 .runs = global_runs(p, {slice.begin, slice.begin + slice.weight.count()})},
                host);
    }
  }
}

}  // namespace aisc
