#include "app/report_data.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// The events that know the memory of the last step in the trace: those between the last two updates
// of the weights.
std::vector<TraceEvent> last_step(const Trace& trace) {
  std::vector<TraceEvent> events = trace.events();
  std::erase_if(events, [](const TraceEvent& e) { return !e.knows_memory; });
  const auto is_update = [](const TraceEvent& e) { return e.part == "optimizer"; };
  const auto end = std::find_if(events.rbegin(), events.rend(), is_update);
  const auto begin = end == events.rend() ? end : std::find_if(end + 1, events.rend(), is_update);
  return {begin.base(), end.base()};
}

Json memory_of(const std::vector<TraceEvent>& events) {
  Json memory = Json::array();
  for (const TraceEvent& e : events) {
    Json live;
    for (std::size_t p = 0; p < kPurposeCount; ++p)
      live[name_of(static_cast<Purpose>(p))] = e.live_bytes[p];
    memory.push_back({{"seconds", e.end_seconds - events.front().begin_seconds},
                      {"part", e.part},
                      {"name", e.name},
                      {"live_bytes", std::move(live)}});
  }
  return memory;
}

// The rows, each with the highest peak that was seen by the process that took its step: a peak that
// rises while a run goes on was there from the beginning. A run that was resumed may have had fewer
// threads, or another machine, before.
std::vector<StepRow> with_final_peaks(const RunLog& log) {
  std::set<std::int64_t> ends;  // the last steps of earlier processes
  for (const Note& note : log.notes())
    if (note.kind == "event" && note.text.starts_with("resumed")) ends.insert(note.step);
  std::vector<StepRow> rows = log.rows();
  double peak = 0;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    while (!ends.empty() && row->step <= *ends.rbegin()) {
      peak = 0;
      ends.erase(std::prev(ends.end()));
    }
    peak = std::max(peak, row->peak_flops);
    row->peak_flops = peak;
  }
  return rows;
}

Json totals_of(const LogTotals& totals) {
  Json peaks;
  for (std::size_t p = 0; p < kPurposeCount; ++p)
    peaks[name_of(static_cast<Purpose>(p))] = totals.peak_bytes[p];
  peaks["total"] = totals.peak_bytes[kPurposeCount];
  return {{"row_count", totals.rows}, {"seconds", totals.seconds}, {"peak_bytes", peaks}};
}

}  // namespace

std::vector<TimelineRow> actions_of(std::span<const TimelineRow> rows) {
  std::vector<TimelineRow> all;
  for (const TimelineRow& row : rows) {
    TimelineRow actions{row.name, {}};
    for (const TraceEvent& e : row.events)
      if (e.part == "forward" || e.part == "backward" || e.part == "weight gradient" ||
          e.part == "optimizer" || e.name == "wait for a stage")
        actions.events.push_back(e);
    if (!actions.events.empty()) all.push_back(std::move(actions));
  }
  return all;
}

std::string report_data(const RunFacts& facts, const std::string& status, const RunLog& log,
                        const Trace& trace, std::span<const TimelineRow> timeline) {
  Json rows = Json::array(), samples = Json::array(), events = Json::array();
  for (const StepRow& row : with_final_peaks(log)) rows.push_back(Json::parse(to_json(row)));
  for (const Note& note : log.notes())
    (note.kind == "sample" ? samples : events)
        .push_back({{"step", note.step}, {"text", note.text}});
  const Json data{{"title", facts.title},
                  {"command", facts.command},
                  {"status", status},
                  {"steps", facts.steps},
                  {"unit", facts.unit},
                  {"bytes_per_token", facts.bytes_per_token},
                  {"machine",
                   {{"name", facts.device},
                    {"cores", facts.cores},
                    {"threads", facts.threads},
                    {"precision", facts.precision},
                    {"peak_flops", facts.peak_flops},
                    {"repeated", facts.repeated}}},
                  {"config", Json::parse(facts.config)},
                  {"rows", std::move(rows)},
                  {"totals", totals_of(log.totals())},
                  {"parts", trace.seconds_by_part()},
                  {"memory", memory_of(last_step(trace))},
                  {"timeline", timeline_json(timeline)},
                  {"prompt", facts.prompt},
                  {"samples", std::move(samples)},
                  {"events", std::move(events)}};
  return data.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace aisc
