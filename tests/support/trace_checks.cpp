#include "tests/support/trace_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace aisc {
namespace {

std::string list(const std::vector<TraceEvent>& events) {
  std::string lines;
  for (const TraceEvent& e : events)
    lines += fmt::format("\n  {} [{}, {}] lane {}", e.name, e.begin_seconds, e.end_seconds, e.lane);
  return lines.empty() ? "\n  nothing" : lines;
}

bool contains(const std::vector<TraceEvent>& events, const std::string& name) {
  return std::any_of(events.begin(), events.end(),
                     [&](const TraceEvent& e) { return e.name == name; });
}

}  // namespace

// For each name the span that ends first among those still possible: if any choice works, this one
// does. Events stand in the order in which they ended, so it is the first one found; where no time
// passes (virtual clocks), that order decides.
::testing::AssertionResult in_order(const std::vector<TraceEvent>& events,
                                    const std::vector<std::string>& names) {
  std::vector<TraceEvent> by_end = events;
  std::stable_sort(by_end.begin(), by_end.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.end_seconds < b.end_seconds;
  });
  auto next = by_end.cbegin();
  double now = -INFINITY;
  for (std::size_t i = 0; i < names.size(); ++i) {
    next = std::find_if(next, by_end.cend(), [&](const TraceEvent& e) {
      return e.name == names[i] && e.begin_seconds >= now;
    });
    if (next == by_end.cend()) {
      const std::string where =
          i == 0 ? "is not in the trace"
                 : fmt::format("does not follow '{}', which ended at {}", names[i - 1], now);
      return ::testing::AssertionFailure()
             << fmt::format("'{}' {}; the trace:{}", names[i], where, list(events));
    }
    now = next->end_seconds;
    ++next;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult overlapping(const std::vector<TraceEvent>& events, const std::string& a,
                                       const std::string& b) {
  for (const std::string& name : {a, b})
    if (!contains(events, name))
      return ::testing::AssertionFailure()
             << fmt::format("'{}' is not in the trace:{}", name, list(events));
  for (const TraceEvent& x : events)
    for (const TraceEvent& y : events)
      if (x.name == a && y.name == b && &x != &y && x.begin_seconds < y.end_seconds &&
          y.begin_seconds < x.end_seconds)
        return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << fmt::format("no '{}' runs beside a '{}'; the trace:{}", a, b, list(events));
}

}  // namespace aisc
