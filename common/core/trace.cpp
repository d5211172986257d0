#include "common/core/trace.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/core/system/files.h"

namespace aisc {

Trace::Lane& Trace::lane() {
  const int next = static_cast<int>(lanes_.size() + named_lanes_.size());
  return lanes_.try_emplace(std::this_thread::get_id(), Lane{next, {}}).first->second;
}

// Not under the lock: a device that is waited for may ask watches that trace something themselves.
void Trace::wait_for_device() {
  Device* device = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (recording_ && watcher_ == std::this_thread::get_id()) device = watched_;
  }
  if (device) device->synchronize();
}

void Trace::throw_failure() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

Trace::Span Trace::span(const char* part, std::string name) {
  throw_failure();
  wait_for_device();
  const std::lock_guard lock(mutex_);
  const bool counts = !watched_ || watched_->kind() != DeviceKind::Cuda || recording_;
  lane().open.push_back({std::move(name), part, clock_.now(), 0.0, counts});
  return Span(this);
}

// A span's own time is its length less that of the spans inside it, which the parent is told.
void Trace::end() noexcept try {
  try {
    wait_for_device();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  Lane& current = lane();
  Open open = std::move(current.open.back());
  current.open.pop_back();
  const double now = clock_.now(), length = now - open.begin_seconds;
  if (open.counts) seconds_[open.part] += length - open.nested_seconds;
  if (!current.open.empty()) current.open.back().nested_seconds += length;
  if (!recording_) return;
  events_.push_back({open.name.empty() ? open.part : std::move(open.name), open.part,
                     open.begin_seconds, now, current.index});
  if (!watched_) return;
  events_.back().knows_memory = true;
  const Ledger ledger = watched_->ledger();
  for (std::size_t p = 0; p < kPurposeCount; ++p)
    events_.back().live_bytes[p] = ledger.purposes[p].live_bytes;
} catch (const std::exception&) {
  // A trace without memory loses a span; the program that it watches goes on.
}

std::string Trace::part() const {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(std::this_thread::get_id());
  return found == lanes_.end() || found->second.open.empty() ? "" : found->second.open.back().part;
}

int Trace::lane_beside(const std::string& name, double begin_seconds, double end_seconds) {
  std::string wanted = name;
  for (int copy = 2;; ++copy) {
    const auto found = std::find_if(named_lanes_.begin(), named_lanes_.end(),
                                    [&](const NamedLane& l) { return l.name == wanted; });
    if (found == named_lanes_.end() || found->end_seconds <= begin_seconds) {
      NamedLane& row = found != named_lanes_.end()
                           ? *found
                           : named_lanes_.emplace_back(NamedLane{
                                 wanted, static_cast<int>(lanes_.size() + named_lanes_.size()), 0});
      row.end_seconds = end_seconds;
      return row.index;
    }
    wanted = name + " " + std::to_string(copy);
  }
}

void Trace::add(const std::string& lane, std::string name, double begin_seconds,
                double end_seconds) {
  const std::lock_guard lock(mutex_);
  if (!recording_) return;
  events_.push_back({std::move(name), lane, begin_seconds, end_seconds,
                     lane_beside(lane, begin_seconds, end_seconds)});
}

std::int64_t Trace::begin_call(const std::string& lane, std::string name, double begin_seconds,
                               std::vector<int> ranks) {
  const std::lock_guard lock(mutex_);
  if (!recording_) return 0;
  open_calls_[++calls_] = {.name = std::move(name),
                           .part = lane,
                           .begin_seconds = begin_seconds,
                           .end_seconds = begin_seconds,
                           .lane = -1,
                           .ranks = std::move(ranks)};
  return calls_;
}

void Trace::end_call(std::int64_t call, double begin_seconds, double end_seconds) {
  const std::lock_guard lock(mutex_);
  auto found = open_calls_.extract(call);
  if (found.empty() || !recording_) return;
  TraceEvent& event = found.mapped();
  event.begin_seconds = begin_seconds;
  event.end_seconds = end_seconds;
  event.lane = lane_beside(event.part, begin_seconds, end_seconds);
  events_.push_back(std::move(event));
}

void Trace::count(std::string name, std::map<std::string, double> values) {
  const std::lock_guard lock(mutex_);
  if (recording_) counted_.push_back({std::move(name), clock_.now(), std::move(values)});
}

void Trace::record(bool on) {
  throw_failure();
  const std::lock_guard lock(mutex_);
  recording_ = on;
}

void Trace::watch(Device* device) {
  const std::lock_guard lock(mutex_);
  watched_ = device;
  watcher_ = std::this_thread::get_id();
}

std::vector<TraceEvent> Trace::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::map<std::string, double> Trace::seconds_by_part() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

void Trace::reset() {
  const std::lock_guard lock(mutex_);
  events_.clear();
  counted_.clear();
  open_calls_.clear();
  seconds_.clear();
}

std::string Trace::to_chrome_json() const {
  nlohmann::json rows = nlohmann::json::array();
  rows.push_back({{"ph", "M"},
                  {"name", "process_name"},
                  {"pid", rank_},
                  {"args", {{"name", "rank " + std::to_string(rank_)}}}});
  std::vector<NamedLane> lanes;
  std::vector<TraceEvent> open;
  const auto count_at = [&](double seconds, const std::string& name, nlohmann::json values) {
    rows.push_back({{"ph", "C"},
                    {"name", name},
                    {"pid", rank_},
                    {"ts", seconds * 1e6},
                    {"args", std::move(values)}});
  };
  {
    const std::lock_guard lock(mutex_);
    lanes = named_lanes_;
    for (const Counted& c : counted_) count_at(c.seconds, c.name, c.values);
    for (const auto& [number, call] : open_calls_) {
      open.push_back(call);
      open.back().lane = static_cast<int>(lanes_.size() + lanes.size());
      lanes.push_back({call.part + ", never ended", open.back().lane, 0});
    }
  }
  for (const NamedLane& l : lanes)
    rows.push_back({{"ph", "M"},
                    {"name", "thread_name"},
                    {"pid", rank_},
                    {"tid", l.index},
                    {"args", {{"name", l.name}}}});
  const auto row_of = [&](const char* kind, const TraceEvent& e) {
    nlohmann::json row{{"ph", kind},   {"name", e.name}, {"cat", e.part},
                       {"pid", rank_}, {"tid", e.lane},  {"ts", e.begin_seconds * 1e6}};  // us
    if (!e.ranks.empty()) row["args"] = {{"ranks", e.ranks}};
    return row;
  };
  for (const TraceEvent& call : open) rows.push_back(row_of("B", call));
  for (const TraceEvent& e : events()) {
    nlohmann::json row = row_of("X", e);
    row["dur"] = (e.end_seconds - e.begin_seconds) * 1e6;
    rows.push_back(std::move(row));
    if (!e.knows_memory) continue;
    nlohmann::json live;
    for (std::size_t p = 0; p < kPurposeCount; ++p)
      live[name_of(static_cast<Purpose>(p))] = e.live_bytes[p];
    count_at(e.end_seconds, "live bytes", std::move(live));
  }
  return nlohmann::json{{"traceEvents", rows}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

void Trace::write_chrome_json(const std::string& path) const { write_file(path, to_chrome_json()); }

}  // namespace aisc
