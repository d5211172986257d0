#include "common/core/shape.h"

#include "common/core/error.h"

namespace aisc {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  if (extents.size() > kMaxRank)
    fail("a shape has at most 4 dimensions, found " + std::to_string(extents.size()));
  for (const std::int64_t extent : extents) {
    if (extent < 0)
      fail("shape: found an extent of " + std::to_string(extent) + ", expected 0 or more");
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

int Shape::index(int d) const {
  const int i = d < 0 ? d + rank_ : d;
  if (i < 0 || i >= rank_)
    fail("dimension " + std::to_string(d) + " of a shape of rank " + std::to_string(rank_));
  return i;
}

std::int64_t Shape::operator[](int d) const { return extents_[static_cast<std::size_t>(index(d))]; }

std::int64_t Shape::count() const {
  std::int64_t n = 1;
  for (int d = 0; d < rank_; ++d) n *= extents_[static_cast<std::size_t>(d)];
  return n;
}

std::int64_t Shape::rows() const {
  std::int64_t n = 1;
  for (int d = 0; d + 1 < rank_; ++d) n *= extents_[static_cast<std::size_t>(d)];
  return n;
}

std::string Shape::to_string() const {
  std::string s = "(";
  for (int d = 0; d < rank_; ++d)
    s += (d ? ", " : "") + std::to_string(extents_[static_cast<std::size_t>(d)]);
  return s + ")";
}

Shape Shape::with(int d, std::int64_t extent) const {
  Shape other = *this;
  other.extents_[static_cast<std::size_t>(index(d))] = extent;
  return other;
}

}  // namespace aisc
