#include "common/nn/key_value_cache.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {

KeyValueCache::KeyValueCache(std::int64_t capacity) : capacity_(capacity) {
  if (capacity < 1)
    fail(fmt::format("key-value cache: the capacity is {} tokens, expected 1 or more", capacity));
}

View KeyValueCache::layer(const std::string& name, ConstView qkv, std::int64_t heads) {
  const Shape shape{qkv.shape()[0], 2 * heads, capacity_, qkv.shape()[2] / (3 * heads)};
  Tensor& kept = layers_[name];
  if (kept && kept.shape() == shape && kept.dtype() == qkv.dtype()) return kept;
  if (kept && length_ > 0)
    fail(
        fmt::format("key-value cache: {} has keys and values {} {}, expected {} {}: it belongs "
                    "to another batch or model",
                    name, kept.shape().to_string(), name_of(kept.dtype()), shape.to_string(),
                    name_of(qkv.dtype())));
  if (length_ > 0)
    fail(
        fmt::format("key-value cache: {} has no keys and values of the {} tokens so far: the "
                    "cache belongs to another model",
                    name, length_));
  kept = Tensor();  // its memory first
  kept = Tensor(shape, qkv.dtype(), qkv.device());
  return kept;
}

void KeyValueCache::advance(std::int64_t tokens) {
  if (tokens < 0 || tokens > capacity_ - length_)
    fail(fmt::format("key-value cache: {} tokens after {}, room for {}", tokens, length_,
                     capacity_));
  length_ += tokens;
}

}  // namespace aisc
