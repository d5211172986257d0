// What generation remembers: the keys and values of every attention layer for the tokens so far. A
// token's keys and values depend on no later token, so that each is computed once; a step without
// this cache would compute all of them again.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/core/tensor.h"

namespace aisc {

// Belongs to one sequence (or one batch of sequences of equal length) of one model. Memory: 2 C per
// token and layer, for `capacity` tokens from the first use on.
class KeyValueCache {
 public:
  // Throws Error if capacity < 1.
  explicit KeyValueCache(std::int64_t capacity);

  std::int64_t capacity() const { return capacity_; }  // tokens
  std::int64_t length() const { return length_; }      // tokens that are in it, of every layer

  // The keys and values (B, 2 H, capacity, D) of the layer with this name, laid out as
  // ops::cached_attention has it, for the B sequences of qkv (B, T, H * 3 * D). Allocated on first
  // use; the cache owns them. Throws Error if they were kept for other sizes while length() > 0.
  View layer(const std::string& name, ConstView qkv, std::int64_t heads);

  // Every layer has stored this many more tokens. Throws Error beyond the capacity.
  void advance(std::int64_t tokens);
  // Forgets the tokens and keeps the memory, for another sequence.
  void clear() { length_ = 0; }

 private:
  std::int64_t capacity_, length_ = 0;
  std::map<std::string, Tensor> layers_;  // by name
};

}  // namespace aisc
