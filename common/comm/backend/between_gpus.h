// How the ranks of a launch exchange what lies on GPUs: through the host, or by NCCL.
#pragma once

#include <memory>

#include "common/comm/launch.h"

namespace aisc {

// Collective: gives the world of ranks whose devices are GPUs NCCL where options.between_gpus and
// circumstances say so; else `world` as it is. Throws Error where NCCL is wanted and impossible.
std::unique_ptr<Communicator> connect_gpus(std::unique_ptr<Communicator> world, Device& device,
                                           const LaunchOptions& options);

}  // namespace aisc
