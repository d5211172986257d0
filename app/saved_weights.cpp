#include "app/saved_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "app/agreement.h"
#include "app/whole_model.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "common/core/system/files.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

// A run of a parameter's elements that a rank has, and on that rank the weights.
struct Piece {
  Range place;  // in the whole parameter
  View weights = {};
};
// By parameter, in the order of the store's.
using Pieces = std::vector<std::vector<Piece>>;

// Of the slices that this rank writes.
Pieces pieces_of(const Trainer& trainer, const std::vector<Parameter*>& parameters) {
  Pieces pieces(parameters.size());
  for (const OptimizerSlice& slice : trainer.optimizer().slices()) {
    if (!trainer.writes(slice)) continue;
    const auto at = std::find_if(parameters.begin(), parameters.end(), [&](const Parameter* p) {
      return p->name == slice.parameter->name;
    });
    assert(at != parameters.end());
    for (const GlobalRun& run :
         global_runs(*slice.parameter, {slice.begin, slice.begin + slice.weight.count()}))
      pieces[static_cast<std::size_t>(at - parameters.begin())].push_back(
          {{run.global, run.global + run.count},
           slice.weight.flat(run.local - slice.begin, run.count)});
  }
  return pieces;
}

// As it travels: parameter, begin and end of each piece.
std::string packed(const Pieces& pieces) {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (const Piece& piece : pieces[i])
      numbers.insert(numbers.end(),
                     {static_cast<std::int64_t>(i), piece.place.begin, piece.place.end});
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]};
}

Pieces unpacked(const std::string& text, std::size_t parameters) {
  std::vector<std::int64_t> numbers(text.size() / sizeof(std::int64_t));
  if (!text.empty()) std::memcpy(numbers.data(), text.data(), text.size());
  Pieces pieces(parameters);
  for (std::size_t i = 0; i < numbers.size(); i += 3)
    pieces[static_cast<std::size_t>(numbers[i])].push_back({{numbers[i + 1], numbers[i + 2]}});
  return pieces;
}

// All ranks see the same, so all throw.
void require_each_once(const std::vector<Parameter*>& parameters, const std::vector<Pieces>& held) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (const Pieces& of_rank : held)
      for (const Piece& piece : of_rank[i]) all.emplace_back(piece.place.begin, piece.place.end);
    all.emplace_back(parameters[i]->global_shape.count(), 0);
    std::sort(all.begin(), all.end());
    std::int64_t expected = 0;
    for (const auto& [begin, end] : all) {
      if (begin != expected)
        fail(
            fmt::format("{}: the ranks' slices go on at element {}, expected at {}: together they "
                        "are each element once",
                        parameters[i]->name, begin, expected));
      expected = end;
    }
  }
}

// A model whose weights are divided among the ranks.
class Divided {
 public:
  // Collective.
  Divided(const Rank& rank, const Trainer& trainer, const std::vector<Parameter*>& parameters,
          Device& host)
      : rank_(rank),
        parameters_(parameters),
        dtype_(trainer.config().model.dtype),
        host_(host),
        mine_(pieces_of(trainer, parameters)) {
    for (const std::string& text :
         all_texts(rank.world, packed(mine_)))  // comm: which elements each rank has
      held_.push_back(unpacked(text, parameters.size()));
    require_each_once(parameters, held_);
  }

  // Of the parameters first .. first + N - 1 this rank's, number first + rank, put together; empty:
  // there is none for it. Collective: each rank sends what it has of the others'.
  Tensor put_together(std::size_t first) const {
    const std::vector<Parameter*>& parameters = parameters_;
    const int self = rank_.world.rank();
    const std::size_t own = first + static_cast<std::size_t>(self);
    Tensor whole;
    if (own < parameters.size()) whole = Tensor(parameters[own]->global_shape, dtype_, host_);
    std::vector<Transfer> transfers;
    for (int other = 0; other < rank_.world.size(); ++other) {
      const std::size_t theirs = first + static_cast<std::size_t>(other);
      if (theirs < parameters.size()) {
        for (const Piece& piece : mine_[theirs]) {
          if (other == self)
            host_.copy(part(whole, piece), piece.weights);
          else
            transfers.push_back({.in = on_host(piece.weights), .to = other});
        }
      }
      if (!whole || other == self) continue;
      for (const Piece& piece : held_[static_cast<std::size_t>(other)][own])
        transfers.push_back({.out = part(whole, piece), .from = other});
    }
    if (!transfers.empty())
      rank_.world.exchange(transfers).wait();  // comm: each weight once, to whom it is written by
    return whole;
  }

 private:
  static View part(const Tensor& whole, const Piece& piece) {
    return whole.view().flat(piece.place.begin, piece.place.count());
  }
  ConstBuffer on_host(const View& weights) const {
    if (weights.device().is_host()) return ConstView(weights);
    const Tensor copy(weights.shape(), weights.dtype(), host_);
    host_.copy(copy, weights);
    return copy;
  }

  const Rank& rank_;
  const std::vector<Parameter*>& parameters_;
  const DType dtype_;
  Device& host_;
  const Pieces mine_;
  std::vector<Pieces> held_;  // by rank, without weights
};

}  // namespace

void write_weights(const Rank& rank, const std::string& folder, const Trainer& trainer,
                   Device& host, const WeightsFormat& format) {
  Communicator& world = rank.world;
  const GptConfig& config = trainer.config().model;
  const WholeModel whole(rank, trainer);
  const std::vector<Parameter*>& parameters = whole.store().parameters();
  const Divided divided(rank, trainer, parameters, host);
  const WeightsOutline outline = format.outline(config, whole.store());
  std::vector<SafetensorsSpec> tensors;
  for (const WeightsOutline::Tensors& its : outline.parameters)
    for (const std::string& name : its.names) tensors.push_back({name, config.dtype, its.shape});
  FileOfRanks file(world, folder + "/model.safetensors", tensors, outline.metadata);
  for (std::size_t i = 0; i < parameters.size(); i += static_cast<std::size_t>(world.size())) {
    const Tensor ours = divided.put_together(i);
    if (!ours) continue;
    const std::size_t own = i + static_cast<std::size_t>(world.rank());
    file.attempt([&](SafetensorsParts& parts) {
      const WeightsOutline::Tensors& its = outline.parameters[own];
      const Tensor theirs(its.stacked(), config.dtype, host);
      format.to_file(theirs, ours, *parameters[own], config);
      const std::int64_t count = its.shape.count();
      for (std::size_t t = 0; t < its.names.size(); ++t)
        parts.write(its.names[t], 0,
                    theirs.view().flat(static_cast<std::int64_t>(t) * count, count));
    });
    host.trim();  // the next parameter is of another size
  }
  file.attempt([&](SafetensorsParts&) {
    if (world.rank() == 0) write_file(folder + "/config.json", outline.config);
  });
  file.commit();
}

void read_weights(const Safetensors& file, Trainer& trainer, Device& host,
                  const WeightsFormat& format) {
  const WeightsFormat::Read read_whole =
      format.reader(file, trainer.config().model, trainer.parts());
  const Optimizer& optimizer = trainer.optimizer();
  const Parameter* read = nullptr;  // which of them `whole` is
  Tensor whole;
  for (std::size_t i = 0; i < optimizer.slices().size(); ++i) {
    const OptimizerSlice& slice = optimizer.slices()[i];
    const Parameter& p = *slice.parameter;
    // A master is as exact as the file, the weight is rounded from it.
    const View to = optimizer.master(i) ? optimizer.master(i).view() : slice.weight;
    if (read != &p) {
      whole = Tensor();  // first: there are never two of them
      host.trim();
      whole = Tensor(p.global_shape, to.dtype(), host);
      read = &p;
      if (!read_whole(p, whole)) whole = Tensor();  // what was drawn stays
    }
    if (!whole) continue;
    for (const GlobalRun& run : global_runs(p, {slice.begin, slice.begin + slice.weight.count()}))
      to.device().copy(to.flat(run.local - slice.begin, run.count),
                       whole.view().flat(run.global, run.count));
    optimizer.round_master(i);
  }
}

}  // namespace aisc
