// A rank's whole world, passed by reference: no globals, since ranks may be threads of one process.
#pragma once

#include "common/comm/communicator.h"
#include "common/core/clock.h"
#include "common/core/device.h"
#include "common/core/trace.h"

namespace aisc {

struct Rank {
  Communicator& world;
  Device& device;
  Clock& clock;
  Trace& trace;
};

}  // namespace aisc
