// Communication between GPUs by NCCL: in nccl/, or in no_nccl.cpp where NCCL is not there.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.h"

namespace aisc {

// A communicator for buffers on `device`, which must be a GPU and no other rank's. `control` is one
// of the same ranks, by threads or MPI: calls whose buffers are all in host memory go to it, as do
// barriers and splits, and with it each call on GPUs is compared. Collective. NCCL runs on streams
// of its own, behind what the device has been asked to compute before a call; wait() makes the
// compute stream wait, and the host goes on. So what ranks do wrong shows when the host waits for
// the device, or at a later call. `timeout_seconds` is control's. The device must outlive the
// communicator and its Works.
//
// The buffers of a call lie on GPUs on all ranks, or on all in host memory; where a rank uses one
// of each, that counts as on GPUs. A rank without any buffer, since it has no elements, is on GPUs.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     Device& device, double timeout_seconds);

// The GPU as other processes may name it: the host's name and the GPU's place on its bus. Empty
// where that is not known.
std::string place_of_gpu(Device& device);

}  // namespace aisc
