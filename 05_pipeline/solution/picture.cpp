#include "05_pipeline/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/core/error.h"

namespace aisc {
namespace {

std::string bubble_text(const Simulation& simulation) {
  return fmt::format("{:.4g} s; idle {:.3g} % of the ideal time, {:.3g} % of the total",
                     simulation.total_seconds, 100 * bubble_of_ideal(simulation),
                     100 * bubble_of_total(simulation));
}

// How many columns a second is.
double columns_a_second(const Simulation& simulation, int columns) {
  double shortest = simulation.total_seconds;
  std::size_t longest_name = 1;
  for (const RankTimes& rank : simulation.ranks)
    for (const TimedAction& action : rank.actions) {
      const double seconds = action.end_seconds - action.begin_seconds;
      if (seconds > 0) shortest = std::min(shortest, seconds);
      longest_name = std::max(longest_name, to_string(action.action, simulation.chunks).size());
    }
  const double room = columns / simulation.total_seconds;
  const double whole = std::min(std::floor(room * shortest), static_cast<double>(longest_name));
  return whole >= 1 ? whole / shortest : room;
}

// Of a rectangle, by kind and whether it is a paler chunk.
const char* class_of(const Action& action) {
  const bool is_pale = action.chunk % 2 != 0;
  switch (action.kind) {
    case ActionKind::Forward:
      return is_pale ? "f2" : "f";
    case ActionKind::Backward:
      return is_pale ? "b2" : "b";
    case ActionKind::WeightGradient:
      return is_pale ? "w2" : "w";
    case ActionKind::Update:
      break;
  }
  return "u";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

constexpr double kLeft = 64, kWidth = 920, kTop = 44, kRow = 30, kBar = 22, kStrip = 6;

// Okabe and Ito's colours, and paler ones.
constexpr const char* kStyle =
    "<style>text{font:11px system-ui,sans-serif;text-anchor:middle;fill:#fff}"
    ".l{text-anchor:start;font-size:13px}.l,.t{fill:#1f2933}rect{stroke:#fff;stroke-width:.6}"
    ".f{fill:#0072B2}.b{fill:#009E73}.w{fill:#7F7F7F}.u{fill:#CC79A7}.c{fill:#E69F00;stroke:none}"
    ".f2{fill:#99C7E0}.b2{fill:#99D8C7}.w2{fill:#CCC}.i{fill:#fff;stroke:#999}line{stroke:#ddd}</"
    "style>\n";

std::string rectangle(const char* kind, double x, double y, double width, double height,
                      const std::string& title) {
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\">"
      "<title>{}</title></rect>",
      kind, x, y, width, height, title);
}

// Squares of the colours that the picture has, and what they mean.
std::string legend(const Simulation& simulation, bool has_messages, double y) {
  struct Entry {
    const char *kind, *name;
    bool is_there;
  };
  const auto has = [&](ActionKind kind) {
    return std::any_of(simulation.ranks[0].actions.begin(), simulation.ranks[0].actions.end(),
                       [&](const TimedAction& a) {
                         return a.action.kind == kind && a.end_seconds > a.begin_seconds;
                       });
  };
  std::string svg;
  double x = kLeft;
  for (const auto& [kind, name, is_there] :
       {Entry{"f", "forward", true}, Entry{"b", "backward", true},
        Entry{"w", "weight gradient", has(ActionKind::WeightGradient)},
        Entry{"u", "update", has(ActionKind::Update)}, Entry{"c", "communication", has_messages},
        Entry{"i", "idle", true}}) {
    if (!is_there) continue;
    svg += rectangle(kind, x, y, 11, 11, name);
    svg += fmt::format("<text class=\"l\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", x + 16, y + 10,
                       name);
    x += 44 + 7.0 * static_cast<double>(std::string(name).size());
  }
  if (simulation.chunks > 1)
    svg += fmt::format(
        "<text class=\"l\" x=\"{:.0f}\" y=\"{:.0f}\">paler: chunks 1, 3, ...</text>\n", x, y + 10);
  return svg;
}

}  // namespace

std::string picture_text(const Simulation& simulation, int columns) {
  if (columns < 1) fail(fmt::format("picture_text: {} columns, at least 1 expected", columns));
  if (!(simulation.total_seconds > 0)) return "";
  const double scale = columns_a_second(simulation, columns);
  const auto column = [&](double seconds) {
    return static_cast<std::size_t>(std::lround(seconds * scale));
  };
  const std::size_t last_rank = fmt::format("{}", simulation.ranks.size() - 1).size();
  std::string text;
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    std::string line(column(simulation.total_seconds), '.');
    for (const auto& [action, begin, end] : simulation.ranks[rank].actions) {
      const std::size_t length = column(end) - column(begin);
      std::string name = to_string(action, simulation.chunks);
      if (name.size() > length) name.resize(1);
      name.resize(length, length > 1 ? '-' : ' ');
      line.replace(column(begin), length, name);
    }
    text += fmt::format("rank {:<{}} |{}|\n", rank, last_rank, line);
  }
  return text + bubble_text(simulation) + "\n";
}

std::string picture_svg(const Simulation& simulation) {
  const double total = simulation.total_seconds > 0 ? simulation.total_seconds : 1;
  const auto x = [&](double seconds) { return kLeft + kWidth * seconds / total; };
  bool has_messages = false;
  std::string rows;
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    const double y = kTop + kRow * static_cast<double>(rank);
    rows += fmt::format("<text class=\"l\" x=\"8\" y=\"{:.0f}\">rank {}</text>\n", y + 16, rank);
    rows += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.0f}\" y2=\"{2:.0f}\"/>\n", kLeft,
                        kLeft + kWidth, y + kRow - 1);
    for (const auto& [action, begin, end] : simulation.ranks[rank].actions) {
      if (!(end > begin)) continue;
      const double width = x(end) - x(begin);
      const std::string number = action.kind == ActionKind::Update
                                     ? std::string("U")
                                     : fmt::format("{}", action.micro_batch);
      rows += rectangle(
          class_of(action), x(begin), y, width, kBar,
          fmt::format("{}: {:.4g} to {:.4g} s", to_string(action, simulation.chunks), begin, end));
      if (width > 7.0 * static_cast<double>(number.size()))
        rows += fmt::format("<text{} x=\"{:.1f}\" y=\"{:.0f}\">{}</text>",
                            action.chunk % 2 != 0 ? " class=\"t\"" : "", x(begin) + width / 2,
                            y + 15, number);
      rows += "\n";
    }
    for (const auto& [action, to, begin, arrives] : simulation.ranks[rank].sent) {
      if (!(arrives > begin)) continue;
      has_messages = true;
      rows += rectangle("c", x(begin), y + kBar, x(std::min(arrives, total)) - x(begin), kStrip,
                        fmt::format("{} to rank {}: {:.4g} to {:.4g} s",
                                    to_string(action, simulation.chunks), to, begin, arrives)) +
              "\n";
    }
  }
  const double bottom = kTop + kRow * static_cast<double>(simulation.ranks.size());
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 {0:.0f}\" "
             "width=\"1000\" height=\"{0:.0f}\">\n<rect width=\"100%\" height=\"100%\" "
             "fill=\"#fff\"/>\n{1}<text class=\"l\" x=\"{2}\" y=\"24\">{3}: {4}</text>\n",
             bottom + 36, kStyle, kLeft, escaped(simulation.name), bubble_text(simulation)) +
         rows + legend(simulation, has_messages, bottom + 14) + "</svg>\n";
}

}  // namespace aisc
