// What NCCL is asked for each collective, and for the steps of a plan.
#pragma once

#include <functional>
#include <vector>

#include "common/comm/nccl/link.h"
#include "common/comm/plan.h"

namespace aisc::nccl {

// The steps of `part`, which rank `rank` of `size` runs on `link` for `collective`. The buffers
// must be those that the part holds, and live as long.
std::vector<std::function<void()>> steps_of(const Collective& collective, Link& link, int rank,
                                            int size);
// The same by a plan: messages are NCCL's, copies the device's, sums ours. `scratch` is the plan's.
std::vector<std::function<void()>> steps_of(Collective collective, Plan plan, const Tensor& scratch,
                                            Link& link, int rank);

// The plan by which control compares the call and finds out whether all ranks make it: signals, and
// of all_to_all_v, whose counts are not in the call, messages of these counts that move nothing.
Plan agreement_plan(const Collective& collective, int rank, int size);

// Enqueues a copy on the same GPU; none where both are the same.
void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

}  // namespace aisc::nccl
