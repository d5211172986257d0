#include "13_vision/drawn_digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "common/core/error.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

struct Point {
  double x, y;  // in a unit square, y downwards
};
using Stroke = std::vector<Point>;

// Degrees as on a clock that begins at 3: 90 is at the bottom.
Stroke arc(Point center, double rx, double ry, double from, double to) {
  constexpr int kSteps = 14;
  Stroke stroke;
  for (int i = 0; i <= kSteps; ++i) {
    const double angle = (from + (to - from) * i / kSteps) * std::numbers::pi / 180;
    stroke.push_back({center.x + rx * std::cos(angle), center.y + ry * std::sin(angle)});
  }
  return stroke;
}

// The strokes of a digit. Four of them are written in two ways.
std::vector<Stroke> strokes_of(int digit, bool other_way) {
  switch (digit) {
    case 0:
      return {arc({.5, .5}, .26, .4, 0, 360)};
    case 1:
      if (other_way) return {{{.5, .1}, {.5, .9}}};
      return {{{.34, .28}, {.54, .1}, {.54, .9}}};
    case 2:
      return {arc({.5, .33}, .24, .23, 180, 380), {{.72, .42}, {.26, .88}, {.78, .88}}};
    case 3:
      return {arc({.47, .3}, .23, .2, 200, 450), arc({.47, .69}, .26, .2, 270, 510)};
    case 4:
      if (other_way) return {{{.32, .12}, {.28, .55}, {.76, .55}}, {{.66, .12}, {.66, .9}}};
      return {{{.62, .9}, {.62, .1}, {.22, .64}, {.8, .64}}};
    case 5:
      return {{{.72, .12}, {.34, .12}, {.31, .46}}, arc({.49, .64}, .25, .24, 225, 500)};
    case 6:
      return {arc({.5, .66}, .23, .23, 0, 360), arc({.82, .6}, .55, .5, 175, 255)};
    case 7:
      if (other_way) return {{{.24, .13}, {.76, .13}, {.42, .9}}, {{.36, .5}, {.7, .5}}};
      return {{{.24, .13}, {.76, .13}, {.42, .9}}};
    case 8:
      return {arc({.5, .3}, .2, .19, 0, 360), arc({.5, .69}, .25, .21, 0, 360)};
    default:
      if (other_way) return {arc({.5, .33}, .23, .22, 0, 360), {{.73, .33}, {.68, .9}}};
      return {arc({.5, .33}, .23, .22, 0, 360), arc({.18, .4}, .55, .5, -5, 75)};
  }
}

// What is drawn of one image: each number uniform in its range, from counters of their own.
class Chances {
 public:
  explicit Chances(const Philox& random) : random_(random) {}
  double in(double low, double high) { return low + (high - low) * random_.uniform(next_++); }

 private:
  const Philox& random_;
  std::uint64_t next_ = 8;  // the first words choose the digit
};

// From the unit square to pixels: bent by two waves, slanted, scaled, turned and moved.
class Hand {
 public:
  explicit Hand(Chances& c)
      : bend_x_(c.in(-.05, .05)),
        bend_y_(c.in(-.05, .05)),
        phase_x_(c.in(0, 2 * std::numbers::pi)),
        phase_y_(c.in(0, 2 * std::numbers::pi)),
        slant_(c.in(-.35, .35)),
        width_(c.in(.65, 1.1)),
        height_(c.in(.65, 1.05)),
        angle_(c.in(-.4, .4)),
        shift_x_(c.in(-.12, .12)),
        shift_y_(c.in(-.12, .12)) {}

  Point operator()(Point p) const {
    const double bent_x = p.x + bend_x_ * std::sin(2 * std::numbers::pi * p.y + phase_x_) - .5;
    const double bent_y = p.y + bend_y_ * std::sin(2 * std::numbers::pi * p.x + phase_y_) - .5;
    const double x = width_ * (bent_x - slant_ * bent_y), y = height_ * bent_y;
    const double c = std::cos(angle_), s = std::sin(angle_);
    return {(c * x - s * y + shift_x_ + .5) * kDigitSide,
            (s * x + c * y + shift_y_ + .5) * kDigitSide};
  }

 private:
  double bend_x_, bend_y_, phase_x_, phase_y_, slant_, width_, height_, angle_, shift_x_, shift_y_;
};

double distance(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
  const double way = length == 0 ? 0 : ((p.x - a.x) * dx + (p.y - a.y) * dy) / length;
  const double t = std::clamp(way, 0.0, 1.0);
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

// Ink of a line of this radius, in pixels: 1 inside, 0 outside, between them over one pixel. A
// pixel has the most that any line gives it, so that crossings are not brighter.
void draw_line(std::vector<double>& ink, Point a, Point b, double radius) {
  const auto pixel = [](double at) {
    return static_cast<int>(std::clamp(std::floor(at), 0.0, kDigitSide - 1.0));
  };
  const int top = pixel(std::min(a.y, b.y) - radius - 1),
            bottom = pixel(std::max(a.y, b.y) + radius + 1);
  const int left = pixel(std::min(a.x, b.x) - radius - 1),
            right = pixel(std::max(a.x, b.x) + radius + 1);
  for (int y = top; y <= bottom; ++y)
    for (int x = left; x <= right; ++x) {
      double& here = ink[static_cast<std::size_t>(y * kDigitSide + x)];
      here = std::max(here, std::clamp(radius + .5 - distance({x + .5, y + .5}, a, b), 0.0, 1.0));
    }
}

}  // namespace

int draw_digit(std::uint64_t seed, std::uint64_t index, std::span<std::uint8_t> pixels) {
  if (pixels.size() != static_cast<std::size_t>(kDigitPixels))
    fail(fmt::format("draw_digit: {} pixels, expected {}", pixels.size(), kDigitPixels));
  const Philox random(seed, "drawn digits", index);
  const int digit = static_cast<int>(random.below(0, 10));
  Chances chances(random);
  const bool other_way = chances.in(0, 1) < .4;
  const Hand hand(chances);
  const double radius = chances.in(.6, 1.9), contrast = chances.in(.5, 1),
               noise = chances.in(0, .22);
  std::vector<double> ink(pixels.size());
  for (const Stroke& stroke : strokes_of(digit, other_way))
    for (std::size_t i = 1; i < stroke.size(); ++i)
      draw_line(ink, hand(stroke[i - 1]), hand(stroke[i]), radius);
  // A scratch that belongs to no digit.
  const Point from{chances.in(0, 28), chances.in(0, 28)};
  draw_line(ink, from, {from.x + chances.in(-7, 7), from.y + chances.in(-7, 7)}, .4);
  constexpr std::uint64_t kNoise = 64;  // behind the chances
  for (std::size_t p = 0; p < pixels.size(); ++p) {
    const double bright = contrast * ink[p] + noise * random.normal(kNoise + p);
    pixels[p] = static_cast<std::uint8_t>(std::lround(255 * std::clamp(bright, 0.0, 1.0)));
  }
  return digit;
}

}  // namespace aisc
