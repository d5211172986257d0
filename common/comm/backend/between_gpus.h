// How the ranks of a launch exchange what lies on GPUs: through the host, or by NCCL.
#pragma once

#include <memory>

#include "common/comm/launch.h"

namespace aisc {

// Collective: the world of ranks whose devices are GPUs stands on `world`, by NCCL where
// options.between_gpus and circumstances say so, else staged (staged_communicator.h). Of other
// ranks it is `world` itself. Throws Error where NCCL is wanted and impossible.
std::unique_ptr<Communicator> connect_gpus(std::unique_ptr<Communicator> world, Device& device,
                                           const LaunchOptions& options);

}  // namespace aisc
