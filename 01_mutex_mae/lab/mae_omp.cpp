// Yours to write; from 01_mutex_mae/solution/mae_omp.cpp (stub ebf966fd0ae5).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// The sums of mae.cpp as OpenMP writes them, one pragma each; then both sums in parallel.
#include "01_mutex_mae/mae_omp.h"

#include <cstring>

#include "common/core/error.h"

namespace aisc {

// LAB 01.8: threads x SIMD
// Helpers, if you want any.
// END LAB 01.8

double mae_omp_critical(const Problem& problem, int threads) {
  // LAB 01.7: the OpenMP forms
  // OpenMP shares the loop out, schedule(static), over as many threads as asked for. Which part
  // of its body may only one thread do at a time?
  throw NotImplemented("lab 01.7: the OpenMP forms", __FILE__, __LINE__);
  // END LAB 01.7
}

double mae_omp_atomic(const Problem& problem, int threads) {
  // LAB 01.7: the OpenMP forms
  throw NotImplemented("lab 01.7: the OpenMP forms", __FILE__, __LINE__);
  // END LAB 01.7
}

double mae_omp_reduction(const Problem& problem, int threads) {
  // LAB 01.7: the OpenMP forms
  throw NotImplemented("lab 01.7: the OpenMP forms", __FILE__, __LINE__);
  // END LAB 01.7
}

float error_by_lanes(const Problem& problem, std::int64_t i) {
  // LAB 01.8: threads x SIMD
  // problem.watch first, as in error_of. An array of kLanes sums does; vectors as a type, such as
  // `using Lanes [[gnu::vector_size(64)]] = float`, are faster. M need not divide by 16.
  throw NotImplemented("lab 01.8: threads x SIMD", __FILE__, __LINE__);
  // END LAB 01.8
}

double mae_simd(const Problem& problem, int threads) {
  // LAB 01.8: threads x SIMD
  throw NotImplemented("lab 01.8: threads x SIMD", __FILE__, __LINE__);
  // END LAB 01.8
}

}  // namespace aisc
