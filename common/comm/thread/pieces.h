// The arithmetic and the copies of an operation whose ranks' buffers all lie open.
#pragma once

#include <cstdint>
#include <span>

#include "common/comm/thread/rendezvous.h"

namespace aisc::thread {

// An operation is `rows` of elements (chunks by rank; one for operations on whole buffers), each
// of which can be cut anywhere.
struct Extent {
  std::int64_t rows = 0;
  std::int64_t row_elements = 0;  // of the longest row
};
Extent extent_of(std::span<const Post> posts);

// Does elements [begin, end) of `row` for all ranks.
void run_row(std::span<const Post> posts, std::int64_t row, std::int64_t begin, std::int64_t end);

}  // namespace aisc::thread
