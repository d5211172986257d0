#include "app/loss_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace aisc {
namespace {

constexpr double kWidth = 760, kHeight = 400;
constexpr double kLeft = 56, kRight = 56, kTop = 64, kBottom = 48;
constexpr std::size_t kMostPoints = 1500;  // two a pixel: more cannot be seen
constexpr std::size_t kMostDots = 40;

constexpr const char* kStyle = R"(<style>
  svg { background: #fff; font: 13px system-ui, sans-serif; }
  text { fill: #444; } .title { font-size: 15px; font-weight: 600; fill: #111; }
  .grid { stroke: #e6e6e6; } .axis { stroke: #999; }
  .training { stroke: #7aa6da; } .validation { stroke: #c2410c; } .dot { fill: #c2410c; }
  .value { fill: #c2410c; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181c; } text { fill: #b8bcc4; } .title { fill: #f0f0f0; }
    .grid { stroke: #2a2e35; } .axis { stroke: #666; }
    .training { stroke: #5b86b8; } .validation { stroke: #fb923c; } 
    .dot, .value { fill: #fb923c; }
  }
</style>
)";

// The smallest of 1, 2, 5 times a power of ten that cuts `range` into at most `parts`.
double tick_distance(double range, int parts) {
  const double raw = std::max(range, 1e-12) / parts;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

struct Axes {
  double last_step, low, high;
  double x(double step) const { return kLeft + step / last_step * (kWidth - kLeft - kRight); }
  double y(double loss) const {
    return kTop + (high - loss) / (high - low) * (kHeight - kTop - kBottom);
  }
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

std::string polyline(const std::vector<LossPoint>& points, const Axes& axes, const char* kind,
                     double width) {
  std::string path;
  for (const LossPoint& p : points)
    path += fmt::format("{:.1f},{:.1f} ", axes.x(static_cast<double>(p.step)), axes.y(p.loss));
  return fmt::format(
      "<polyline class=\"{}\" fill=\"none\" stroke-width=\"{}\" stroke-linejoin=\"round\" "
      "points=\"{}\"/>\n",
      kind, width, path);
}

std::string grid(const Axes& axes) {
  std::string out;
  const double dy = tick_distance(axes.high - axes.low, 6);
  for (double v = std::ceil(axes.low / dy) * dy; v <= axes.high + 1e-9; v += dy)
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.{6}f}</text>\n",
        kLeft, kWidth - kRight, axes.y(v), kLeft - 8, axes.y(v) + 4, v, dy < 0.1 ? 2 : 1);
  const double dx = std::max(1.0, tick_distance(axes.last_step, 8));
  for (double s = 0; s <= axes.last_step + 1e-9; s += dx)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n",
                       axes.x(s), kHeight - kBottom + 20, s);
  out += fmt::format(
      "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>\n"
      "<text x=\"{3}\" y=\"{4}\" text-anchor=\"middle\">step</text>\n"
      "<text x=\"{0}\" y=\"{5}\">loss (nats)</text>\n",
      kLeft, kWidth - kRight, kHeight - kBottom, (kLeft + kWidth - kRight) / 2, kHeight - 10,
      kTop - 16);
  return out;
}

std::string legend() {
  const double x = kWidth - kRight - 220, y = kTop - 16;
  return fmt::format(
      "<line class=\"training\" stroke-width=\"1.5\" x1=\"{0}\" x2=\"{1}\" y1=\"{4}\" y2=\"{4}\"/>"
      "<text x=\"{2}\" y=\"{3}\">training</text>\n"
      "<line class=\"validation\" stroke-width=\"2.5\" x1=\"{5}\" x2=\"{6}\" y1=\"{4}\" "
      "y2=\"{4}\"/><text x=\"{7}\" y=\"{3}\">validation</text>\n",
      x, x + 28, x + 36, y, y - 4, x + 116, x + 144, x + 152);
}

// Dots on the points, unless they would hide the line, and the last value beside its end.
std::string dots(const std::vector<LossPoint>& points, const Axes& axes) {
  std::string out;
  for (const LossPoint& p : points)
    if (points.size() <= kMostDots || &p == &points.back())
      out += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n",
                         axes.x(static_cast<double>(p.step)), axes.y(p.loss));
  if (!points.empty()) {
    const LossPoint& last = points.back();
    out +=
        fmt::format("<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\">{:.3f}</text>\n",
                    axes.x(static_cast<double>(last.step)) + 8, axes.y(last.loss) + 4, last.loss);
  }
  return out;
}

// The finite points; where there are more than can be drawn, the means of groups of neighbours.
std::vector<LossPoint> drawable(const std::vector<LossPoint>& points) {
  std::vector<LossPoint> finite, means;
  for (const LossPoint& p : points)
    if (std::isfinite(p.loss)) finite.push_back(p);
  const std::size_t group = (finite.size() + kMostPoints - 1) / kMostPoints;
  if (group <= 1) return finite;
  for (std::size_t begin = 0; begin < finite.size(); begin += group) {
    const std::size_t end = std::min(begin + group, finite.size());
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += finite[i].loss;
    means.push_back({finite[end - 1].step, sum / static_cast<double>(end - begin)});
  }
  return means;
}

}  // namespace

std::string loss_svg(const std::vector<LossPoint>& all_training,
                     const std::vector<LossPoint>& all_validation, const std::string& title) {
  const auto training = drawable(all_training), validation = drawable(all_validation);
  Axes axes{1, 1e300, -1e300};
  for (const auto* points : {&training, &validation})
    for (const LossPoint& p : *points) {
      axes.last_step = std::max(axes.last_step, static_cast<double>(p.step));
      axes.low = std::min(axes.low, p.loss);
      axes.high = std::max(axes.high, p.loss);
    }
  if (axes.low > axes.high) axes.low = 0, axes.high = 1;  // nothing to draw
  const double margin = std::max(0.05 * (axes.high - axes.low), 0.05);
  axes.low = std::max(0.0, axes.low - margin);
  axes.high += margin;

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n{2}",
      kWidth, kHeight, kStyle);
  svg += fmt::format("<title>{0}</title>\n<text class=\"title\" x=\"{1}\" y=\"28\">{0}</text>\n",
                     escaped(title), kLeft);
  svg += grid(axes) + polyline(training, axes, "training", 1.2);
  svg += polyline(validation, axes, "validation", 2.5);
  return svg + dots(validation, axes) + legend() + "</svg>\n";
}

}  // namespace aisc
