// Weights as whole numbers of 8 or 4 bits, with a scale for all of them, for a row, or for a group.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/core/tensor.h"

namespace aisc {

// Symmetric: codes on both sides of a zero in the middle; a range that is not, as of what a GELU
// makes, loses up to half of them. Asymmetric: all codes lie between the smallest and the largest
// weight, and each scale has a zero point, the code of 0.
enum class Symmetry { Symmetric, Asymmetric };

// Which weights share a scale: all, those of a row (an output channel), or `group` neighbours in a
// row. An outlier spoils the scale of those that share it, and of no others.
enum class Per { Tensor, Channel, Group };

struct Quantization {
  int bits = 8;  // or 4
  Symmetry symmetry = Symmetry::Symmetric;
  Per per = Per::Group;
  // Of Per::Group: the weights of a group, even; a row's last one may have fewer.
  std::int64_t group = 64;

  // Throws Error for other bits than 8 and 4, and for groups that are not positive and even.
  void validate() const;
  friend bool operator==(const Quantization&, const Quantization&) = default;
};

// The numbers that codes stand for: scale * (code - zero) for the codes lowest .. highest.
struct CodeGrid {
  float scale = 1;
  int zero = 0, lowest = 0, highest = 255;
};

// The grid of weights of which `low` is the smallest and `high` the largest (Jacob et al.,
// "Quantization and training of neural networks for efficient integer-arithmetic-only inference",
// arXiv 1712.05877, section 2.1). 0 is always a number of it: a range without 0 is widened to it.
//   Symmetric:  codes 1 .. 255 (1 .. 15) around zero 128 (8), scale = max(|low|, |high|) / 127 (7)
//   Asymmetric: codes 0 .. 255 (0 .. 15), scale = (high - low) / 255 (15), zero = -low / scale,
//               rounded
// The scale is 1 where it would be 0 or another number below the normal ones of F32.
CodeGrid grid_of(double low, double high, const Quantization& how);
// The code whose number is nearest: value / scale is rounded to nearest, ties to even, and what is
// beyond the grid takes its last code. Inside low .. high the number is at most scale / 2 away.
int code_of(float value, const CodeGrid& grid);

// Which scale is whose: that of columns g * group .. (g + 1) * group of a row is number
// first(row) + g.
struct ScaleLayout {
  std::int64_t rows, columns;  // of the weight
  std::int64_t group, groups;  // columns that share a scale, and scales that a row has
  std::int64_t scale_rows;     // 1 or rows
  std::int64_t first(std::int64_t row) const { return scale_rows == rows ? row * groups : 0; }
  std::int64_t begin(std::int64_t g) const { return g * group; }
  std::int64_t end(std::int64_t g) const { return std::min(columns, (g + 1) * group); }
};
// Throws Error unless the shape is (rows, columns), and as validate().
ScaleLayout scale_layout(const Shape& shape, const Quantization& how);

// A weight (O, I) as codes, with all that a file has to say of it.
struct Codes {
  Shape shape;  // of the weight: (O, I)
  Quantization how;
  // U8: (O, I), or of 4 bits (O, (I + 1) / 2), two codes a byte, the earlier column in the lower
  // half. Each row begins at a byte; what follows an odd row's last code is 0.
  Tensor codes;
  // F32: (1, 1), (O, 1) or (O, groups of a row).
  Tensor scales;
  // U8, as scales; empty where the quantization is symmetric.
  Tensor zero_points;

  // The zero point of all codes, where they have no zero points of their own.
  int middle() const { return 1 << (how.bits - 1); }
  ScaleLayout layout() const { return scale_layout(shape, how); }
  std::int64_t bytes() const;  // of codes, scales and zero points
  Codes share() const;         // one more owner of the same tensors
};

// Codes of a weight of this shape whose tensors nobody has written yet: for a reader of files.
// Memory of Purpose::Parameters. Throws Error as scale_layout().
Codes make_codes(const Shape& shape, const Quantization& how, Device& device);

// The codes of `weight` (O, I), any floating type, on a device whose memory is the host's. `clips`,
// F32 and shaped as the scales, says to what part of it each range shrinks before it has its grid
// (more/calibrate.h); empty: all are 1. Throws Error as make_codes(), and for a weight that is not
// finite, naming its row.
Codes quantize(ConstView weight, const Quantization& how, Device& device, ConstView clips = {});

// out (O, I), any floating type: the numbers that the codes stand for. Throws Error for another
// shape.
void dequantize(View out, const Codes& codes);
// The same of rows first .. first + R: out (R, I).
void dequantize_rows(View out, const Codes& codes, std::int64_t first);

// What dequantize() makes of quantize(), in place ("fake quantization"). On a GPU it goes over the
// host; on a device without numbers nothing happens. Throws Error as quantize().
void round_trip(View weight, const Quantization& how);

}  // namespace aisc
