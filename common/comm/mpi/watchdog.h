// The watchdog: that no rank waits in vain. It may be skipped: nothing here moves a message of a
// program. It guarantees that what goes wrong on one rank (an exception, a mismatch, a process that
// is gone, a wait for somebody who has returned or is late) becomes one error, the same on all
// ranks, and soon; that memory of calls under way may be freed after it; and that launch() ends.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/mpi/control.h"
#include "common/comm/mpi/engine.h"

namespace aisc::mpi {

// "Inside" as in the engine, whose lock is this one's, too. watchdog.cpp: what the ranks tell each
// other; watchdog_waits.cpp: who waits for whom; watchdog_processes.cpp: who is gone.
class Watchdog {
 public:
  // Keeps all three; `engine` is first called in meet_all().
  Watchdog(Session& session, const LaunchOptions& options, Engine& engine);

  // The launch.

  // Inside: returns when all processes have come to this launch, with the same options. Throws
  // Error naming those that do not come in time.
  void meet_all();
  Time origin() const { return origin_; }  // of all ranks' clocks, once they have met
  // From now on to close(): SIGTERM, where it would end the process, does so after a report.
  void catch_term();
  // This rank's program is over, with `outcome`. Waits until everybody's is; then returns what
  // launch() should throw, the same on all ranks. If a rank does not return within the timeout
  // after a failure, ends all of them.
  Outcome finish(const Outcome& outcome);
  // Nobody drives any more: later calls fail.
  void close();

  // Failures.

  // The first counts; it is told to all ranks. All blocked and later calls throw it. From then on
  // nothing is posted.
  void fail(const std::string& message);
  bool has_failed() const { return failed_.load(); }
  std::string failure();
  // After a failure: returns when nobody will touch this rank's buffers any more. The operations of
  // `members` are let go.
  void wait_for_quiet(const std::shared_ptr<Members>& members);

  // What the rank and the engine tell it, inside.

  // Throws the failure, if there is one; else `call` is what this rank called last.
  void begin(const Call& call, std::uint64_t sequence, const std::string& communicator);
  [[noreturn]] void throw_failure() const;
  // fail() of who is inside. `gone`: the rank whose process is gone; `tell`: the others.
  void fail_inside(const std::string& message, int gone = -1, bool tell = true);
  // After a failure, whenever something has ended: tells all when no receive is open any more.
  void tell_when_quiet();
  // A message of the watchdog's has come.
  void received(int from);
  // The rank waits until one of `what` is over. Whenever next_judgement() has come, judge_wait()
  // fails the world if there is nothing left to wait for, or it has been too long.
  void begin_wait(std::span<Operation* const> what);
  Time next_judgement() const;
  void judge_wait(const std::function<bool()>& is_over);
  void end_wait();
  // "; its last call was ...", as the board says, or nothing.
  std::string last_call_of(int rank) const;
  // Fails the world if look() has found a process gone.
  void fail_if_gone();

  // The helper, not inside, whenever it wakes: looks now and then whether all processes are there.
  void look();

 private:
  // Of another rank, as far as it has told.
  struct Peer {
    bool hello = false, quiet = false, gone = false;
    std::optional<Time> finished;
    Outcome outcome;
    std::optional<State> state;  // its answer to the last question
  };
  class Observer;

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  Peer& me() { return peer(session_.rank()); }
  bool all(bool (*is)(const Peer&)) const;
  // "1, 2": of those that the test is true of.
  std::string ranks_that(const std::function<bool(const Peer&)>& is) const;

  void handle(const Control& control, int from);
  void send(int to, const std::shared_ptr<const Control>& control);
  void send_to_all(const Control& control);
  std::shared_ptr<const Control> failure_control(int gone = -1) const;
  [[noreturn]] void abort_all(const std::string& message);

  State own_state() const;
  std::vector<int> missing() const;  // of what this rank waits for
  void ask_all();                    // what they are doing; returns with the answers
  std::string diagnose(double waited_seconds) const;
  bool waits_for_finished_rank(Time now) const;

  void end_without_launcher();
  void look_for_gone_ranks();
  void restore_term();

  Session& session_;
  const LaunchOptions& options_;
  Engine& engine_;
  const std::chrono::nanoseconds timeout_;
  const int control_tag_;
  Time origin_{};

  Control control_in_{};
  std::vector<Peer> peers_;
  bool has_go_ = false;  // all ranks have come
  std::span<Operation* const> waits_for_{};
  Time wait_begin_{};

  std::atomic<bool> failed_ = false;
  std::string failure_;
  bool quiet_told_ = false;
  Time quiet_deadline_{};

  std::atomic<int> gone_ = -1;  // found by the helper
  Time last_look_{};            // the helper's
  const pid_t parent_ = getppid();
  bool handles_term_ = false;
  struct sigaction previous_term_ = {};
};

}  // namespace aisc::mpi
