// The world of a program with one rank, owned.
#pragma once

#include <memory>

#include "common/comm/rank.h"

namespace aisc {

struct World {
  CpuDevice device;
  std::unique_ptr<Communicator> communicator = make_self_communicator();
  Clock clock = Clock::wall();
  Trace trace{clock};
  Rank rank{*communicator, device, clock, trace};
};

}  // namespace aisc
