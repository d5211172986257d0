// A convolution whose images are split among ranks by rows, or by rows and columns: what does not
// fit on one device is the image, not the filters.
//
// The three sums (Dryden, Maruyama, Benson, Moon, Snir and Van Essen, "Improving Strong-Scaling of
// CNN Training by Exploiting Finer-Grained Parallelism", 2019, arXiv 1903.06681), for N samples, C
// channels, F filters of K x K with K odd, O = (K - 1) / 2, stride 1 and O zeros on each side:
//
//   y[k,f,i,j]     = sum over c = 0..C-1, a = -O..O, b = -O..O   of
//                    x[k,c,i+a,j+b] w[f,c,a+O,b+O]
//   dL/dw[f,c,a,b] = sum over k = 0..N-1, i = 0..H-1, j = 0..W-1   of
//                    dL/dy[k,f,i,j] x[k,c,i+a-O,j+b-O]
//   dL/dx[k,c,i,j] = sum over f = 0..F-1, a = -O..O, b = -O..O   of
//                    dL/dy[k,f,i-a,j-b] w[f,c,a+O,b+O]
//
// The last one is often quoted with "sum j = 0..F-1": j is the column there, and the sum runs over
// the filters f. So forward reads x beyond a rank's own rows, and the gradient of x reads dL/dy
// beyond them: both O rows on each side. The gradient of w reads the same x as forward, and is a
// sum over all ranks.
//
// In place of dL/dy, F channels of it, one could send back what a rank's outputs add to the dL/dx
// of others, C channels, and add it there: but the sums then come in another order. Here each rank
// has all terms of its own elements and adds them as the unsplit convolution does: the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "06_tensor_parallel/more/areas.h"
#include "common/comm/rank.h"
#include "common/nn/layer.h"

namespace aisc {

// Returns the part needed[r] of an image, on rank r of `ranks`, where owned[i] is what rank i has
// of it: `own` (N, C, rows, columns). The owned parts cover the image once. Each rank sends each
// other one what that one needs of its own, in a single exchange. A halo may be wider than the
// neighbour's part: the rest comes from the ranks behind it. Where it is not, 8 messages are the
// most, corners being messages of their own. Elements sent over a side of W columns with a halo of
// O rows: O W C N; over a corner O^2 C N. One rank that needs all gets `own` itself.
//
// Collective, blocks. Throws Error where there is not one part for each rank, where own's shape is
// not that of its part, and on a GPU.
Tensor with_halo(Communicator& ranks, const Tensor& own, const std::vector<Area>& owned,
                 const std::vector<Area>& needed);

// A convolution of images that are split over a grid of ranks, x and y each by areas_of(). Filters
// are whole on each rank.
class SpatialConvolution {
 public:
  struct Options {
    RankGrid grid{};
    std::int64_t rows = 0, columns = 0;                // of the whole x
    std::int64_t filter_rows = 1, filter_columns = 1;  // odd or even
    std::int64_t row_stride = 1, column_stride = 1;
    std::int64_t row_padding = 0, column_padding = 0;  // zeros on each of the two sides
  };
  // rank.trace shows the halos. `ranks` are as many as the grid has. Throws Error where they are
  // not, where the filter does not fit into the image, and for a rank without a row or column of x
  // or y.
  SpatialConvolution(const Rank& rank, Communicator& ranks, const Options& options);

  // This rank's parts.
  const Area& x_area() const { return x_areas_[me_]; }
  const Area& y_area() const { return y_areas_[me_]; }

  // This rank's part of y (N, F, rows, columns) from its part of x (N, C, rows, columns) and the
  // filters (F, C, A, B). Pushes x with its halo. The bits are those of the unsplit convolution.
  // Throws Error for other shapes, as backward does.
  Tensor forward(const Tensor& x, const Tensor& filters, Saved& saved) const;

  struct Gradients {
    Tensor dx;        // this rank's part; the bits are those of the unsplit convolution
    Tensor dfilters;  // summed over the ranks, the same on all
  };
  // Pops what forward pushed. All-reduces F C A B elements, beside the halo of dy.
  Gradients backward(const Tensor& dy, const Tensor& filters, Saved& saved) const;

 private:
  ConvolutionOptions options_of(const Area& x, const Area& y) const;
  Tensor with_halo_of(const char* name, const Tensor& own, const std::vector<Area>& owned,
                      const std::vector<Area>& needed) const;

  Rank rank_;
  Communicator& ranks_;
  const std::size_t me_;
  const ConvolutionAxis rows_, columns_;              // of the whole image
  std::vector<Area> x_areas_, y_areas_;               // by rank
  std::vector<Area> forward_reads_, backward_reads_;  // of x, of dy; by rank
};

// Of odd filters of `filter` x `filter` with zeros of half their width: y is as large as x.
inline SpatialConvolution::Options same_size(const RankGrid& grid, std::int64_t rows,
                                             std::int64_t columns, std::int64_t filter) {
  return {.grid = grid,
          .rows = rows,
          .columns = columns,
          .filter_rows = filter,
          .filter_columns = filter,
          .row_padding = filter / 2,
          .column_padding = filter / 2};
}

}  // namespace aisc
