// A communicator that does everything as late as it may: each operation happens only inside a
// wait(). A missing wait() is then no race that is mostly won, but a wrong result every time.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/launch.h"

namespace aisc {

// At a call, the returned communicator keeps the buffers, saves inputs that lie in outputs, and
// fills the outputs with 0xFF bytes, a NaN in every floating type. The first wait() of any Work (or
// done(), or the end of one; of this communicator or of any that was split from it) starts all
// recorded operations on `inner`, in the order of issue, into buffers of its own; each wait() then
// writes its own result and no other. Nothing is over before it is waited for, and nothing waits
// that would not wait on `inner`. What was split from it is late, too.
//
//   LaunchOptions options{.ranks = 4, .internals = {.decorate = make_late_comm}};
std::unique_ptr<Communicator> make_late_comm(std::unique_ptr<Communicator> inner);

// Ranks whose communicators are late and whose tensors begin as NaN.
inline LaunchOptions late(int ranks) {
  return {.ranks = ranks,
          .device = {.poison = true},
          .bind = false,
          .internals = {.decorate = make_late_comm}};
}

}  // namespace aisc
