#include "common/train/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/comm/host_values.h"

namespace aisc {
namespace {

using Json = nlohmann::json;

struct Extent {
  double begin = 0, end = 0;
};
Extent extent_of(std::span<const TimelineRow> rows) {
  Extent all;
  bool first = true;
  for (const TimelineRow& row : rows)
    for (const TraceEvent& event : row.events) {
      all.begin = first ? event.begin_seconds : std::min(all.begin, event.begin_seconds);
      all.end = first ? event.end_seconds : std::max(all.end, event.end_seconds);
      first = false;
    }
  return all;
}

// Outer spans before those inside: longer ones first.
std::vector<TraceEvent> outer_first(const TimelineRow& row) {
  std::vector<TraceEvent> events = row.events;
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.end_seconds - a.begin_seconds > b.end_seconds - b.begin_seconds;
  });
  return events;
}

// A letter of its own for each part: one of its name, as far as there are.
std::map<std::string, char> letters_of(std::span<const TimelineRow> rows) {
  std::map<std::string, char> letters;
  std::string taken;
  for (const TimelineRow& row : rows)
    for (const TraceEvent& event : row.events) {
      if (letters.contains(event.part)) continue;
      char letter = '#';
      for (const char c : event.part + "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        if (std::isalpha(static_cast<unsigned char>(c)) && taken.find(c) == std::string::npos) {
          letter = c;
          break;
        }
      taken += letter;
      letters[event.part] = letter;
    }
  return letters;
}

// Okabe and Ito's colours, which people who see fewer colours can tell apart, and paler ones. Those
// of a step's parts are the same in app/report/page.css and tools/timelines.py.
const std::map<std::string, const char*> kPartColours = {
    {"forward", "#0072B2"},   {"backward", "#009E73"}, {"weight gradient", "#7F7F7F"},
    {"optimizer", "#CC79A7"}, {"update", "#CC79A7"},   {"communication", "#E69F00"}};
constexpr const char* kColours[] = {"#D55E00", "#56B4E9", "#99C7E0", "#EEBF99", "#99D8C7",
                                    "#EBC9DC", "#F5D999", "#BBE1F6", "#CCCCCC", "#000000"};

// What is easier to read there: white on the darkest two, black on all others.
const char* ink_on(std::string_view colour) {
  return colour == "#0072B2" || colour == "#000000" ? "#fff" : "#000";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.3g} us", seconds * 1e6)
         : seconds < 1  ? fmt::format("{:.3g} ms", seconds * 1e3)
                        : fmt::format("{:.3g} s", seconds);
}

std::string bytes_text(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"})
    if (bytes >= 1024) bytes /= 1024, unit = next;
  return fmt::format("{:.4g} {}", bytes, unit);
}

}  // namespace

std::vector<TimelineRow> gather_timeline(const Rank& rank) {
  Json mine = Json::array();
  for (const TraceEvent& event : rank.trace.events())
    mine.push_back({event.name, event.part, event.begin_seconds, event.end_seconds, event.lane});
  std::vector<TimelineRow> rows;
  const std::vector<std::string> all = gather_texts(rank.world, mine.dump());
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::map<int, TimelineRow> lanes;
    for (const Json& event : Json::parse(all[r])) {
      const int lane = event[4];
      lanes[lane].events.push_back({event[0], event[1], event[2], event[3], lane});
    }
    for (auto& [lane, row] : lanes) {
      row.name = fmt::format("rank {}{}", r, lane == 0 ? "" : ", " + row.events[0].part);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string timeline_text(std::span<const TimelineRow> rows, int columns) {
  const Extent all = extent_of(rows);
  if (all.end <= all.begin) return "";
  const std::map<std::string, char> letters = letters_of(rows);
  std::size_t width = 0;
  for (const TimelineRow& row : rows) width = std::max(width, row.name.size());
  const double cell = (all.end - all.begin) / columns;
  std::string text;
  for (const TimelineRow& row : rows) {
    std::string line(static_cast<std::size_t>(columns), '.');
    for (const TraceEvent& event : outer_first(row))
      for (std::size_t i = 0; i < line.size(); ++i) {
        const double middle = all.begin + (static_cast<double>(i) + 0.5) * cell;
        if (event.begin_seconds <= middle && middle < event.end_seconds)
          line[i] = letters.at(event.part);
      }
    text += fmt::format("{:<{}} |{}|\n", row.name, width, line);
  }
  text += fmt::format("{:<{}}  0{:>{}}\n ", "", width, time_text(all.end - all.begin), columns - 1);
  for (const auto& [part, letter] : letters) text += fmt::format(" {} {} ", letter, part);
  return text + "\n";
}

std::string timeline_svg(std::span<const TimelineRow> rows, const std::string& title) {
  constexpr double kLeft = 160, kWidth = 810, kTop = 48, kRow = 30, kLetter = 8;
  const Extent all = extent_of(rows);
  const double span = std::max(all.end - all.begin, 1e-12);
  const auto x = [&](double seconds) { return kLeft + kWidth * (seconds - all.begin) / span; };
  std::map<std::string, const char*> colours;
  std::size_t others = 0;
  for (const auto& [part, letter] : letters_of(rows)) {
    const auto own = kPartColours.find(part);
    colours[part] =
        own != kPartColours.end() ? own->second : kColours[others++ % std::size(kColours)];
  }
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 {0:.0f}\" width=\"1000\" "
      "height=\"{0:.0f}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"{1}\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{2}</text>\n",
      bottom + 78, kLeft, escaped(title));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double y = kTop + kRow * static_cast<double>(r);
    svg += fmt::format("<text x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8,
                       y + 18, escaped(rows[r].name));
    for (const TraceEvent& event : outer_first(rows[r])) {
      const double begin = x(event.begin_seconds), width = x(event.end_seconds) - begin;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\">"
          "<title>{}: {}, {}</title></rect>\n",
          begin, y + 4, width, kRow - 8, colours.at(event.part), escaped(event.part),
          escaped(event.name), time_text(event.end_seconds - event.begin_seconds));
      if (width > kLetter * static_cast<double>(event.name.size()))
        svg += fmt::format(
            "<text x=\"{:.2f}\" y=\"{:.0f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
            begin + width / 2, y + 19, ink_on(colours.at(event.part)), escaped(event.name));
    }
  }
  for (int tick = 0; tick <= 4; ++tick)
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n",
                       kLeft + kWidth * tick / 4, bottom + 18, time_text(span * tick / 4));
  double at = kLeft, line = bottom + 34;
  for (const auto& [part, colour] : colours) {
    const double width = 32 + 7.2 * static_cast<double>(part.size());
    if (at + width > kLeft + kWidth) at = kLeft, line += 18;
    svg += fmt::format(
        "<rect x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"11\" height=\"11\" fill=\"{2}\"/>"
        "<text x=\"{3:.0f}\" y=\"{4:.0f}\">{5}</text>\n",
        at, line, colour, at + 15, line + 10, escaped(part));
    at += width;
  }
  return svg + "</svg>\n";
}

nlohmann::ordered_json timeline_json(std::span<const TimelineRow> rows) {
  const double first = extent_of(rows).begin;
  auto all = nlohmann::ordered_json::array();
  for (const TimelineRow& row : rows) {
    auto events = nlohmann::ordered_json::array();
    for (const TraceEvent& e : row.events)
      events.push_back({e.part, e.name, e.begin_seconds - first, e.end_seconds - first});
    all.push_back({{"name", row.name}, {"events", std::move(events)}});
  }
  return all;
}

CommunicationTime communication_time(std::span<const TraceEvent> events) {
  using Spans = std::vector<std::pair<double, double>>;
  Spans beside, waiting;
  for (const TraceEvent& event : events) {
    if (event.lane > 0) beside.emplace_back(event.begin_seconds, event.end_seconds);
    if (event.part == "communication") waiting.emplace_back(event.begin_seconds, event.end_seconds);
  }
  // Spans by their begin: what lies before `until` is counted.
  const auto covered = [](Spans spans) {
    std::sort(spans.begin(), spans.end());
    double seconds = 0, until = 0;
    for (const auto& [begin, end] : spans) {
      seconds += std::max(0.0, end - std::max(begin, until));
      until = std::max(until, end);
    }
    return seconds;
  };
  return {.under_way = covered(std::move(beside)), .exposed = covered(std::move(waiting))};
}

std::string bytes_table(const Ledger& ledger, std::span<const PredictedBytes> predicted) {
  std::string text = fmt::format("{:<14} {:<28} {:>12} {:>12} {:>8}\n", "purpose", "formula",
                                 "its bytes", "ledger", "ratio");
  for (std::size_t i = 0; i < kPurposeCount; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    const auto peak = static_cast<double>(ledger[purpose].peak_bytes);
    const auto found = std::find_if(predicted.begin(), predicted.end(),
                                    [&](const PredictedBytes& p) { return p.purpose == purpose; });
    if (found == predicted.end() && peak == 0) continue;
    const bool known = found != predicted.end();
    text += fmt::format(
        "{:<14} {:<28} {:>12} {:>12} {:>8}\n", name_of(purpose), known ? found->formula : "-",
        known ? bytes_text(found->bytes) : "-", bytes_text(peak),
        known && found->bytes > 0 ? fmt::format("{:.3f}", peak / found->bytes) : "-");
  }
  return text;
}

}  // namespace aisc
