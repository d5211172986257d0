// GPUs for a backend that reads and writes host memory alone.
#pragma once

#include <memory>

#include "common/comm/communicator.h"

namespace aisc {

// Stands on `host`, and so does what is split from it. Buffers on GPUs get copies in host memory in
// their place (staging.h), which CommStats::staged_bytes counts; those on the host go to `host` as
// they are. A group of one rank copies on its GPU.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host);

}  // namespace aisc
