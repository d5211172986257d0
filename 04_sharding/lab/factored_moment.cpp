// Yours to write; from 04_sharding/solution/factored_moment.cpp (stub 5f6a3d587ffc).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "04_sharding/factored_moment.h"

#include <cmath>

#include "common/core/error.h"

namespace aisc {

template <class T>
void factor_second_moment(const RowsAndColumns<T>& moment, const RowsAndColumns<const T>& sums,
                          double beta2, const RowsAndColumns<T>& factors) {
  // LAB 04.6: factor_second_moment
  // First R and C, which are moment.row and moment.column. Then the two factors of 1 / sqrt(V):
  // all of V must add up to what all of R does. Rows of padding have R = 0; their factor is 0.
  // Sum and roots in double.
  throw NotImplemented("lab 04.6: factor_second_moment", __FILE__, __LINE__);
  // END LAB 04.6
}

template void factor_second_moment(const RowsAndColumns<float>&, const RowsAndColumns<const float>&,
                                   double, const RowsAndColumns<float>&);
template void factor_second_moment(const RowsAndColumns<double>&,
                                   const RowsAndColumns<const double>&, double,
                                   const RowsAndColumns<double>&);

}  // namespace aisc
