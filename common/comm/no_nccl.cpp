// Where NCCL was not found when this was built, or CUDA was not asked for.
#include "common/comm/backend/nccl_communicator.h"
#include "common/comm/launch.h"
#include "common/core/error.h"

namespace aisc {

bool has_nccl() { return false; }

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> /*control*/,
                                                     Device& /*device*/,
                                                     double /*timeout_seconds*/) {
  fail(
      "nccl: this program was built without NCCL (Debian and Ubuntu: NVIDIA's libnccl-dev, then "
      "./aisc build cuda)");
}

std::string place_of_gpu(Device& /*device*/) { return {}; }

}  // namespace aisc
