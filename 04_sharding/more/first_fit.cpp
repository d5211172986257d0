// First fit over a map of blocks: holes are what lies between them, so that they merge by
// themselves.
#include "04_sharding/more/first_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

constexpr std::int64_t kMapCells = 64;

// Begins and ends blocks, each at a time of its own.
class TraceWriter {
 public:
  std::size_t begin(std::string name, std::int64_t bytes, Lifetime lifetime) {
    if (bytes < 1)
      fail(fmt::format("training_trace: {} of {} bytes, expected 1 or more", name, bytes));
    blocks_.push_back({std::move(name), bytes, lifetime, time_++, -1});
    return blocks_.size() - 1;
  }
  void end(std::size_t block) { blocks_[block].end = time_++; }
  std::vector<Allocation> finish() && {
    for (Allocation& block : blocks_)
      if (block.end == -1) block.end = time_;
    return std::move(blocks_);
  }

 private:
  std::int64_t time_ = 0;
  std::vector<Allocation> blocks_;
};

// The events of a trace in their order: (time, begins, block); what ends comes first.
using Event = std::tuple<std::int64_t, bool, std::size_t>;
std::vector<Event> events_of(std::span<const Allocation> trace) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].end <= trace[i].begin)
      fail(fmt::format("trace: block {} ({}) begins at {} and ends at {}, expected later", i,
                       trace[i].name, trace[i].begin, trace[i].end));
    events.emplace_back(trace[i].begin, true, i);
    events.emplace_back(trace[i].end, false, i);
  }
  std::sort(events.begin(), events.end());
  return events;
}

}  // namespace

const char* name_of(Lifetime lifetime) {
  return lifetime == Lifetime::Long ? "long-lived" : "short-lived";
}

FirstFit::FirstFit(std::int64_t bytes, const FirstFitOptions& options)
    : bytes_(bytes), short_lived_bytes_(bytes - options.long_lived_bytes) {
  if (bytes < 1 || options.long_lived_bytes < 0 || options.long_lived_bytes > bytes)
    fail(fmt::format(
        "FirstFit: {} of {} bytes for long-lived blocks, expected 0 to all of 1 or more",
        options.long_lived_bytes, bytes));
}

FirstFit::Region FirstFit::region(Lifetime lifetime) const {
  if (short_lived_bytes_ == bytes_) return {0, bytes_};
  return lifetime == Lifetime::Long ? Region{short_lived_bytes_, bytes_}
                                    : Region{0, short_lived_bytes_};
}

std::vector<FirstFit::Region> FirstFit::holes(const Region& in) const {
  std::vector<Region> found;
  std::int64_t begin = in.begin;
  const auto add = [&](std::int64_t end) {
    if (end > begin) found.push_back({begin, end});
  };
  for (auto block = blocks_.lower_bound(in.begin); block != blocks_.end() && block->first < in.end;
       ++block) {
    add(block->first);
    begin = block->first + block->second.bytes;
  }
  add(in.end);
  return found;
}

std::int64_t FirstFit::allocate(std::int64_t block_bytes, Lifetime lifetime) {
  if (block_bytes < 1)
    fail(fmt::format("FirstFit: a block of {} bytes, expected 1 or more", block_bytes));
  const Region in = region(lifetime);
  for (const Region& hole : holes(in))
    if (hole.end - hole.begin >= block_bytes) {
      blocks_[hole.begin] = {block_bytes, lifetime};
      return hole.begin;
    }
  const Room left = room(lifetime);
  fail(fmt::format(
      "FirstFit: {} bytes for a {} block: of {} bytes {} are free, the largest hole "
      "has {}",
      block_bytes, name_of(lifetime), in.end - in.begin, left.free_bytes, left.largest_hole_bytes));
}

void FirstFit::free(std::int64_t offset) {
  if (blocks_.erase(offset) == 0)
    fail(fmt::format("FirstFit: free({}): no block begins there", offset));
}

FirstFit::Room FirstFit::room(Lifetime lifetime) const {
  Room room{0, 0};
  for (const Region& hole : holes(region(lifetime))) {
    room.free_bytes += hole.end - hole.begin;
    room.largest_hole_bytes = std::max(room.largest_hole_bytes, hole.end - hole.begin);
  }
  return room;
}

std::string FirstFit::map(std::int64_t cell_bytes) const {
  if (cell_bytes < 1)
    fail(fmt::format("FirstFit: a map with cells of {} bytes, expected 1 or more", cell_bytes));
  std::string cells(static_cast<std::size_t>((bytes_ + cell_bytes - 1) / cell_bytes), '.');
  for (const auto& [offset, block] : blocks_)
    for (std::int64_t i = offset / cell_bytes; i * cell_bytes < offset + block.bytes; ++i) {
      char& cell = cells[static_cast<std::size_t>(i)];
      if (cell != 'L') cell = block.lifetime == Lifetime::Long ? 'L' : 's';
    }
  return cells;
}

std::vector<Allocation> training_trace(const TrainingSizes& sizes) {
  if (sizes.layers < 1 || sizes.activations.empty())
    fail(fmt::format("training_trace: {} layers of {} activations, expected 1 or more of both",
                     sizes.layers, sizes.activations.size()));
  TraceWriter trace;
  const auto of_input = [&](std::int64_t layer, const char* what, Lifetime lifetime) {
    return trace.begin(fmt::format("layer {}: {}", layer, what), sizes.checkpoint_bytes, lifetime);
  };
  const auto of_activation = [&](std::int64_t layer, const char* what, std::size_t i) {
    return trace.begin(fmt::format("layer {}: {} {}", layer, what, i), sizes.activations[i].bytes,
                       Lifetime::Short);
  };
  const std::size_t count = sizes.activations.size();
  std::vector<std::size_t> inputs{of_input(0, "input", Lifetime::Long)};  // the checkpoints
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    std::size_t last = of_activation(layer, "activation", 0);
    for (std::size_t i = 1; i < count; ++i)
      trace.end(std::exchange(last, of_activation(layer, "activation", i)));
    inputs.push_back(of_input(layer + 1, "input", Lifetime::Long));
    trace.end(last);
  }
  std::size_t behind = of_input(sizes.layers, "gradient", Lifetime::Short);  // that of the loss
  trace.end(inputs.back());
  for (std::int64_t layer = sizes.layers; layer-- > 0;) {
    std::vector<std::size_t> again;
    for (std::size_t i = 0; i < count; ++i) again.push_back(of_activation(layer, "again", i));
    for (std::size_t i = count; i-- > 0;) {
      const std::size_t gradient = of_activation(layer, "gradient", i);
      if (const std::int64_t bytes = sizes.activations[i].weight_bytes; bytes != 0)
        trace.begin(fmt::format("layer {}: weight gradient {}", layer, i), bytes, Lifetime::Long);
      trace.end(std::exchange(behind, gradient));
      trace.end(again[i]);
    }
    trace.end(std::exchange(behind, of_input(layer, "gradient", Lifetime::Short)));
    trace.end(inputs[static_cast<std::size_t>(layer)]);
  }
  trace.end(behind);
  return std::move(trace).finish();
}

std::vector<std::int64_t> replay(FirstFit& memory, std::span<const Allocation> trace) {
  std::vector<std::int64_t> offsets(trace.size());
  for (const auto& [time, begins, i] : events_of(trace)) {
    if (!begins) {
      memory.free(offsets[i]);
      continue;
    }
    try {
      offsets[i] = memory.allocate(trace[i].bytes, trace[i].lifetime);
    } catch (const Error& error) {
      fail(fmt::format("at time {}, block {} ({}): {}\n{}", time, i, trace[i].name, error.what(),
                       memory.map((memory.bytes() + kMapCells - 1) / kMapCells)));
    }
  }
  return offsets;
}

std::int64_t peak_bytes(std::span<const Allocation> trace) {
  std::int64_t alive = 0, peak = 0;
  for (const auto& [time, begins, i] : events_of(trace)) {
    alive += begins ? trace[i].bytes : -trace[i].bytes;
    peak = std::max(peak, alive);
  }
  return peak;
}

}  // namespace aisc
