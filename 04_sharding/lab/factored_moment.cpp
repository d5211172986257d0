// Yours to write; from 04_sharding/solution/factored_moment.cpp (stub 28f03d4b821c).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "04_sharding/factored_moment.h"

#include <cmath>

#include "common/core/error.h"

namespace aisc {

template <class T>
void factor_second_moment(const RowsAndColumns<T>& moment, const RowsAndColumns<const T>& sums,
                          double beta2, const RowsAndColumns<T>& factors) {
  // LAB 04.6: factor_second_moment
  // `moment` and `factors` are written, as the header says: R is moment.row, C is moment.column.
  // Sums and roots are computed in double.
  throw NotImplemented("lab 04.6: factor_second_moment", __FILE__, __LINE__);
  // END LAB 04.6
}

template void factor_second_moment(const RowsAndColumns<float>&, const RowsAndColumns<const float>&,
                                   double, const RowsAndColumns<float>&);
template void factor_second_moment(const RowsAndColumns<double>&,
                                   const RowsAndColumns<const double>&, double,
                                   const RowsAndColumns<double>&);

}  // namespace aisc
