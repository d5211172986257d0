// The second moment of a matrix in a number for each row and each column (Shazeer and Stern,
// "Adafactor: adaptive learning rates with sublinear memory cost", arXiv 1804.04235, section 3).
#pragma once

#include <span>

namespace aisc {

// A number for each row and for each column of an n x m matrix.
template <class T>
struct RowsAndColumns {
  std::span<T> row;     // (n)
  std::span<T> column;  // (m)
};

// The factored second moment of one matrix (algorithm 4, lines 4 to 6), for float and double.
//   R <- beta2 R + (1 - beta2) sums.row,   C <- beta2 C + (1 - beta2) sums.column,
//   V(i, j) = R(i) C(j) / sum of R,        1 / sqrt(V(i, j)) = factors.row(i) factors.column(j).
// `moment` holds R and C, before and after; `sums` the sums of this step's squared gradients over
// whole rows and whole columns; `factors` is written: row(i) = sqrt(sum of R / R(i)), column(j) =
// 1 / sqrt(C(j)), and 0 where R(i) or C(j) is 0, as in rows of padding.
template <class T>
void factor_second_moment(const RowsAndColumns<T>& moment, const RowsAndColumns<const T>& sums,
                          double beta2, const RowsAndColumns<T>& factors);

}  // namespace aisc
