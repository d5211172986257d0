// Digits that the course draws itself, so that an image classifier needs no download: the strokes
// of a digit, bent, slanted, turned, moved, of some thickness, on a noisy ground.
#pragma once

#include <cstdint>
#include <span>

namespace aisc {

inline constexpr std::int64_t kDigitSide = 28;  // rows and columns, as MNIST's
inline constexpr std::int64_t kDigitPixels = kDigitSide * kDigitSide;

// Draws image `index` of the endless set `seed` into pixels (28 x 28), 0 dark to 255 bright, and
// returns its digit. A pure function of both: any rank draws any image, in any order. Throws Error
// for another number of pixels.
int draw_digit(std::uint64_t seed, std::uint64_t index, std::span<std::uint8_t> pixels);

}  // namespace aisc
