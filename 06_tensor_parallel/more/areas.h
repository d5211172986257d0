// Parts of an image that is split among a grid of ranks, and what a convolution reads of them.
#pragma once

#include <cstdint>
#include <vector>

#include "06_tensor_parallel/more/convolution.h"
#include "common/core/range.h"

namespace aisc {

// A part of the whole image; of a tensor (N, C, rows, columns) all samples and channels.
struct Area {
  Range rows, columns;

  bool empty() const { return rows.count() == 0 || columns.count() == 0; }
  friend bool operator==(const Area&, const Area&) = default;
};
Area common_part(const Area& a, const Area& b);  // what lies in both; maybe empty

// Rank `row * columns + column` of a communicator is at (row, column).
struct RankGrid {
  int rows = 1, columns = 1;
  int size() const { return rows * columns; }
};

// Each rank's part of an image of so many rows and columns, by rank: shares, rounded down in the
// middle of the image, too, which keeps a part of the output near to the part of the input that it
// reads, whatever the stride.
std::vector<Area> areas_of(const RankGrid& grid, std::int64_t rows, std::int64_t columns);

// Elements of x that outputs `y` read, without padding; outputs that read elements `x`. Maybe
// empty.
Range read_by(const ConvolutionAxis& axis, const Range& y);
Range readers_of(const ConvolutionAxis& axis, const Range& x);

// Copies `what` of an image, all samples and channels, from one part of it to another. Of one type;
// on the CPU, or without numbers. Throws Error where `what` does not lie in both parts.
void copy_area(View to, const Area& to_area, ConstView from, const Area& from_area,
               const Area& what);

}  // namespace aisc
