// One side of a message, as operations of threads and of MPI hold it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/core/dtype.h"

namespace aisc {

struct Message {
  bool is_send;
  int peer;         // rank of the communicator
  std::byte* data;  // of a send only read; null: compared, but it moves nothing
  std::int64_t count;
  DType dtype;
  std::size_t bytes() const { return data ? static_cast<std::size_t>(count) * size_of(dtype) : 0; }
};

}  // namespace aisc
