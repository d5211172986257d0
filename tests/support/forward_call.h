// Hands a call that a communicator has received on to another one: what decorators are made of.
#pragma once

#include <span>

#include "common/comm/communicator.h"
#include "common/comm/plan.h"

namespace aisc {

// The call of a do_exchange(), under the name that the caller used.
Work forward(Communicator& to, const Call& call, std::span<const Transfer> transfers);

// The call of a do_collective() or, with a plan, of a do_plan(). A plan takes the place of those
// that `to` used.
Work forward(Communicator& to, const Collective& collective, const Plan* plan = nullptr);

// wait_any() for the Works inside those that a decorator handed out: the index of one that is over,
// which still has to be waited for.
std::size_t wait_any_inside(std::span<Work* const> works);

}  // namespace aisc
