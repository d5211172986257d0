// IDX: the format in which MNIST came, and in which Fashion-MNIST and others are published (LeCun,
// Cortes, Burges, "The MNIST database of handwritten digits"). Bytes:
//
//   0 0 T D    two zeros, the type of an element, the number of dimensions
//   sizes      D of them, 4 bytes each, the most significant first
//   elements   row-major
//
// Of the types there are here unsigned bytes, T = 0x08, which images and labels are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aisc {

struct IdxArray {
  std::vector<std::int64_t> sizes;  // images: (N, H, W); labels: (N)
  std::vector<std::uint8_t> elements;

  // Products of the sizes from dimension `first` on: elements of one of the others.
  std::int64_t count(std::size_t first = 0) const;
};

// Throws Error that names the file, what is wrong, what was found and what is expected: bytes that
// are no IDX (of a file that is still compressed that is said), another type, 0 or more than 4
// dimensions, and another number of elements than the sizes ask for.
IdxArray read_idx(const std::string& path);

// Whole or not at all. Throws Error for 0 or more than 4 sizes, one outside [0, 2^32), and
// another number of elements; then nothing is written.
void write_idx(const std::string& path, const IdxArray& array);

}  // namespace aisc
