#include "04_sharding/factored_moment.h"

#include <cmath>

namespace aisc {

template <class T>
void factor_second_moment(const RowsAndColumns<T>& moment, const RowsAndColumns<const T>& sums,
                          double beta2, const RowsAndColumns<T>& factors) {
  // LAB 04.6: factor_second_moment
  // > `moment` and `factors` are written, as the header says: R is moment.row, C is moment.column.
  // > Sums and roots are computed in double.
  const auto average = [beta2](std::span<T> mean, std::span<const T> now) {
    for (std::size_t i = 0; i < mean.size(); ++i)
      mean[i] = static_cast<T>(beta2 * mean[i] + (1 - beta2) * now[i]);
  };
  average(moment.row, sums.row);
  average(moment.column, sums.column);
  double sum = 0;
  for (const T r : moment.row) sum += r;
  const auto root = [](double numerator, double x) {
    return static_cast<T>(x > 0 ? std::sqrt(numerator / x) : 0);
  };
  for (std::size_t i = 0; i < moment.row.size(); ++i) factors.row[i] = root(sum, moment.row[i]);
  for (std::size_t j = 0; j < moment.column.size(); ++j)
    factors.column[j] = root(1, moment.column[j]);
  // END LAB 04.6
}

template void factor_second_moment(const RowsAndColumns<float>&, const RowsAndColumns<const float>&,
                                   double, const RowsAndColumns<float>&);
template void factor_second_moment(const RowsAndColumns<double>&,
                                   const RowsAndColumns<const double>&, double,
                                   const RowsAndColumns<double>&);

}  // namespace aisc
