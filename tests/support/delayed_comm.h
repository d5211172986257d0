// A communicator that dawdles and shuffles, so that a test meets orders of events that the
// scheduler seldom chooses: who takes them for granted fails now and then, with a seed.
#pragma once

#include <cstdint>
#include <memory>

#include "common/comm/communicator.h"

namespace aisc {

// Before each call and each wait() the returned communicator sleeps up to 300 microseconds, yields,
// or does neither; sends and receives of an exchange reach `inner` in another order, kept only per
// pair of ranks. Drawn from `seed` and the rank. What is split from it behaves the same.
//
//   options.internals.decorate = [](auto world) { return make_delayed_comm(std::move(world), 7); };
std::unique_ptr<Communicator> make_delayed_comm(std::unique_ptr<Communicator> inner,
                                                std::uint64_t seed);

}  // namespace aisc
