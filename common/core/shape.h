// The extents of a tensor: at most four dimensions, row-major, the last one contiguous.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace aisc {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;                                   // rank 0: one element
  Shape(std::initializer_list<std::int64_t> extents);  // throws Error: rank > 4 or an extent < 0

  int rank() const { return rank_; }
  // Extent of dimension d; negative d counts from the end, as in x.shape()[-1]. Throws Error.
  std::int64_t operator[](int d) const;
  std::int64_t count() const;                    // number of elements
  std::int64_t rows() const;                     // product of all but the last: (rows, last)
  std::string to_string() const;                 // "(2, 3, 5)"
  Shape with(int d, std::int64_t extent) const;  // the same with one extent replaced

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  int index(int d) const;

  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace aisc
