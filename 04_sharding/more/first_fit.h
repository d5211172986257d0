// An allocator that fragments, and the region of its own for what lives long: M_D of ZeRO-R.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace aisc {

enum class Lifetime { Short, Long };
const char* name_of(Lifetime lifetime);  // "short-lived", "long-lived"

struct FirstFitOptions {
  // The last bytes of the memory are for long-lived blocks alone, and those before for short-lived
  // ones; 0: all live together.
  std::int64_t long_lived_bytes = 0;
};

// Offsets in a memory of `bytes` bytes; no memory is touched. A block gets the lowest hole that is
// large enough, and never moves. Holes that touch are one hole.
//
// Memory fragments where short-lived and long-lived blocks alternate: a short-lived block goes, the
// long-lived one behind it stays, and the next block does not fit in between. Allocation then fails
// although enough is free in all. A region of its own for the long-lived ones (activation
// checkpoints, gradients) lets both be packed (Rajbhandari et al., "ZeRO", arXiv 1910.02054,
// section 6.3).
class FirstFit {
 public:
  // Throws Error for bytes < 1, and for a region that is negative or larger than the memory.
  explicit FirstFit(std::int64_t bytes, const FirstFitOptions& options = {});

  // The offset of a new block. Throws Error if `block_bytes` < 1, and, where no hole is large
  // enough, one that says how much is free in all and how large the largest hole is, of the region
  // of this lifetime.
  std::int64_t allocate(std::int64_t block_bytes, Lifetime lifetime);
  // Throws Error if no block begins there.
  void free(std::int64_t offset);

  // Of the region where blocks of this lifetime are.
  struct Room {
    std::int64_t free_bytes;
    std::int64_t largest_hole_bytes;
  };
  Room room(Lifetime lifetime) const;

  // A character for each `cell_bytes` bytes from 0 on, the last cell may be shorter: 'L' where a
  // long-lived block is, else 's' where a short-lived one is, else '.'. Throws Error for
  // cell_bytes < 1.
  std::string map(std::int64_t cell_bytes) const;

  std::int64_t bytes() const { return bytes_; }

 private:
  struct Region {
    std::int64_t begin, end;
  };
  struct Block {
    std::int64_t bytes;
    Lifetime lifetime;
  };
  Region region(Lifetime lifetime) const;
  std::vector<Region> holes(const Region& in) const;  // from low to high, none of 0 bytes

  const std::int64_t bytes_, short_lived_bytes_;
  std::map<std::int64_t, Block> blocks_;  // by offset
};

// A block of a trace. Time counts events: each block begins and ends at one.
struct Allocation {
  std::string name;  // "layer 2: gradient 0"
  std::int64_t bytes = 0;
  Lifetime lifetime = Lifetime::Short;
  std::int64_t begin = 0, end = 0;  // lives in [begin, end)
};

// What a training step of layers that are alike allocates.
struct TrainingSizes {
  // One of the tensors that a layer computes, and the weights that it is computed with.
  struct Activation {
    std::int64_t bytes;
    std::int64_t weight_bytes = 0;  // of their gradient; 0: there are none
  };
  std::int64_t layers = 0;
  std::int64_t checkpoint_bytes = 0;      // the input of each layer, and of the loss
  std::vector<Activation> activations{};  // of a layer, in forward order
};

// The blocks of one forward and backward in which a layer's input alone is kept, in the order in
// which they begin:
//   forward of a layer: its activations, each freed when the next one is there, then its output:
//     the long-lived checkpoint that the next layer, or the loss, begins with;
//   backward of a layer: all its activations again; then, from the last to the first, the gradient
//     of each, short-lived, and of its weights, long-lived until the end of the trace. The
//     activation and the gradient behind it are then freed, after the first one the checkpoint.
// Throws Error without layers or activations, and for a size < 1.
std::vector<Allocation> training_trace(const TrainingSizes& sizes);

// Runs the trace on `memory`, of events at the same time those that free first, and returns each
// block's offset. What was in `memory` stays. Throws Error for a block that ends before it begins
// or when it does; and where a block does not fit, one that names it and shows a map of the memory
// in 64 cells or fewer.
std::vector<std::int64_t> replay(FirstFit& memory, std::span<const Allocation> trace);

// The most bytes that are alive at once: what no allocator can do with less.
std::int64_t peak_bytes(std::span<const Allocation> trace);

}  // namespace aisc
