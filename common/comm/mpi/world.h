// One launch of processes, as one of its ranks sees it. Its two parts know each other: the engine
// moves messages on (engine.h), the watchdog sees that nobody waits in vain (watchdog.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/comm/launch.h"
#include "common/comm/mpi/engine.h"
#include "common/comm/mpi/members.h"
#include "common/comm/mpi/session.h"
#include "common/comm/mpi/watchdog.h"

namespace aisc::mpi {

struct World {
  World(Session& its_session, const LaunchOptions& its_options);
  ~World() { close(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return session.rank(); }
  int size() const { return session.size(); }

  // Returns when all processes have come to this launch, with the same options. Throws Error naming
  // those that do not come in time.
  void meet_all();
  // The thread that moves messages on while the rank computes, from now on. Throws Error where the
  // system starts no more.
  void start_helper() { engine.start_helper(); }
  // Ends the helper; no call may follow.
  void close();

  // An identity that none of this rank's communicators has.
  std::int64_t free_id();

  Session& session;
  const LaunchOptions options;  // internals.message_bytes: whole elements
  Engine engine;
  Watchdog watchdog;
  const std::shared_ptr<Members> everybody;
  Clock* clock = nullptr;  // the rank's, while its program runs
  Trace* trace = nullptr;
  std::atomic<bool> is_traced = false;  // the ends of operations are measured

 private:
  bool is_closed_ = false;
};

}  // namespace aisc::mpi
