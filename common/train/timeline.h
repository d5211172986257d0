// Who did what when, and who holds what: the two pictures of a step on many ranks.
#pragma once

#include <algorithm>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/comm/rank.h"

namespace aisc {

// Spans of one rank's thread or lane, in seconds of a clock that all share.
struct TimelineRow {
  std::string name;  // "rank 2", "rank 2, world": what its communicator did beside it
  std::vector<TraceEvent> events;
};

// What the traces of all ranks have recorded, rank by rank, on rank 0; nothing elsewhere.
// Collective.
std::vector<TimelineRow> gather_timeline(const Rank& rank);

// A line a row of so many columns, each the letter of the innermost span at its middle ("." where
// there is none); then what the letters stand for. "" for no events.
std::string timeline_text(std::span<const TimelineRow> rows, int columns = 100);
// The same as a picture that stands alone, inner spans over outer ones, coloured by part: forward
// blue, backward green, weight gradients grey, updates purple, communication orange. What has room
// for its name has it.
std::string timeline_svg(std::span<const TimelineRow> rows, const std::string& title);
// For other programs that draw, the report's page and tools/timelines.py: rows
// {"name": "rank 2", "events": [["forward", "F0", begin, end], ...]}, in seconds from the first.
nlohmann::ordered_json timeline_json(std::span<const TimelineRow> rows);

// Of what a rank's trace has recorded. Spans of the part "communication" have nothing in them that
// computes, so that their seconds are those of Trace::seconds_by_part().
struct CommunicationTime {
  double under_way = 0;  // seconds in which something was on a lane beside its thread
  double exposed = 0;    // in which its thread did nothing but communicate
  double hidden() const { return std::max(0.0, under_way - exposed); }
};
CommunicationTime communication_time(std::span<const TraceEvent> events);

// What a formula says of a purpose, beside what the ledger saw at most.
struct PredictedBytes {
  Purpose purpose;
  std::string formula;  // "4 N"
  double bytes;
};
// A line a purpose that has a formula or has held bytes: formula, its bytes, the ledger's peak, and
// the ratio of peak and formula.
std::string bytes_table(const Ledger& ledger, std::span<const PredictedBytes> predicted);

}  // namespace aisc
