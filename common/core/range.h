// Ranges of indices, and how one is shared out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aisc {

// begin <= i < end.
struct Range {
  std::int64_t begin = 0, end = 0;

  std::int64_t count() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Part `part` of `parts` of a range: from part * count / parts, rounded down, to where the next one
// begins. So parts follow one another, and their counts differ by at most one.
inline Range share_of(const Range& all, std::int64_t part, std::int64_t parts) {
  return {all.begin + part * all.count() / parts, all.begin + (part + 1) * all.count() / parts};
}
inline Range share_of(std::int64_t count, std::int64_t part, std::int64_t parts) {
  return share_of(Range{0, count}, part, parts);
}

// A number that is not negative, as containers count.
inline std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace aisc
