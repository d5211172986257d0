// What ranks that are threads of one process share: who waits for what, the work that anybody may
// do meanwhile, and the first failure. All blocking of the backend is in World::block.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/backend/wire_queue.h"
#include "common/comm/call.h"
#include "common/comm/network.h"
#include "common/core/clock.h"
#include "common/core/trace.h"

namespace aisc::thread {

using Time = std::chrono::steady_clock::time_point;

// Where a call is made: its communicator's name (kept by the World) and its number there.
struct Place {
  const std::string* communicator = nullptr;
  std::uint64_t sequence = 0;
};

// Something that a rank waits for.
class Waitable {
 public:
  Waitable(const Call& its_call, const Place& its_place) : call(its_call), place(its_place) {}
  virtual ~Waitable() = default;
  virtual bool over() const = 0;  // any thread may ask
  // World ranks whose call it needs; asked when the caller has waited too long. Any thread.
  virtual std::vector<int> missing() const = 0;
  // After a failure, if it is not over: returns when nobody touches its buffers any more.
  virtual void withdraw() = 0;
  // When it is over or withdrawn: lets go of the tensors. Their rank's thread does so, since other
  // threads may hold this object for longer than the rank has its device.
  virtual void release() = 0;

  // Once it is over. Virtual time: when it began and ended; to be counted by settle() when its rank
  // has waited for it. Wall time: when it ended, if that is still known.
  virtual double begin_seconds() const { return 0; }
  virtual double end_seconds() const { return 0; }
  virtual void settle() {}
  virtual std::optional<Time> end_time() const { return {}; }

  const Call call;
  const Place place;
};

// Work that any thread may do: pieces of a large operation, or the next step of a plan.
class Job {
 public:
  virtual ~Job() = default;
  // Does one piece; false if that was the last. `rank`: whose thread runs it, -1 for the helper.
  virtual bool run_piece(int rank) = 0;
  // Several threads may take pieces at once; else it is taken from the queue whole, once.
  virtual bool is_shared() const = 0;
};

struct WorldOptions {
  int ranks = 1;
  double timeout_seconds = 30;
  std::optional<Network> network{};  // given: virtual time
  std::int64_t chunk_bytes = 256 * 1024;
  std::int64_t inline_bytes = 16 * 1024;
};

// A message over cards or wires, which waits for its turn.
struct WireMessage {
  double sent_seconds;
  int from, to;               // world ranks
  std::uint64_t issue, part;  // the call's number on its rank, the message's in the call
  std::int64_t bytes;
  std::function<void(const Passage&)> deliver;  // when it passes; does not throw
};

class World {
 public:
  explicit World(const WorldOptions& options);
  ~World() { stop(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const WorldOptions& options() const { return options_; }
  bool is_virtual() const { return options_.network.has_value(); }
  const std::string* keep(const std::string& name);  // lives as long as the world

  // Called by rank's own thread: its clock and trace; what it asked for last (for errors).
  void attach(int rank, Clock* clock, Trace* trace);
  void set_last_call(int rank, const Call& call, const Place& place);
  Clock& clock(int rank) { return *ranks_[static_cast<std::size_t>(rank)]->clock; }
  bool is_traced() const { return traced_.load(std::memory_order_relaxed); }
  void set_traced() { traced_.store(true, std::memory_order_relaxed); }  // ends are measured
  std::uint64_t next_issue(int rank) { return state(rank).issued++; }
  Trace* trace(int rank) { return ranks_[static_cast<std::size_t>(rank)]->trace; }

  // Blocks rank's thread until one of `what` is over, doing jobs meanwhile; the index of the one
  // that is (in virtual time the earliest). Throws the world's failure.
  std::size_t block(int rank, std::span<const Waitable* const> what);
  // Virtual time: true if `what` is over by rank's time. Waits until that is known.
  bool is_over_by_now(int rank, const Waitable& what);
  // To be called after `over()` of something that `rank` may wait for has become true.
  void notify(int rank);

  void push(std::shared_ptr<Job> job);
  bool run_job(int rank);  // does one piece of one job; false if there was none
  void send_by_wire(WireMessage message);

  // The first failure counts; all blocked and later calls throw it.
  void fail(const std::string& message);
  bool has_failed() const { return failed_.load(); }
  std::string failure() const;
  void throw_failure() const;  // if there is one

  // Rank's program is over: nobody needs to wait for it any more.
  void finish(int rank);
  void stop();  // ends the helper; to be called before the last owner lets go

 private:
  enum class Mode { First, Earliest, Ask };

  struct RankState {
    Clock* clock = nullptr;
    Trace* trace = nullptr;
    std::uint64_t issued = 0;  // calls that are made of messages
    std::condition_variable wake;
    std::atomic<bool> parked = false;
    bool woken = false;  // a parked rank that was told to look again: it counts as running
    bool finished = false;
    std::span<const Waitable* const> waits_for{};
    Mode mode = Mode::First;
    bool decided = false;  // virtual time: the earliest of waits_for is known

    // Written at every call, on cache lines of their own: others read `parked` at every call.
    alignas(64) std::atomic<bool> looking = false;  // in block(), awake
    // The last call, written by the rank's thread without a lock.
    std::atomic<const std::string*> last_communicator = nullptr;
    std::atomic<std::uint64_t> last_sequence = 0;
    std::atomic<CommOp> last_op{};
    std::atomic<std::int64_t> last_count = 0;
    std::atomic<DType> last_dtype{};
    std::atomic<ReduceOp> last_reduce{};
    std::atomic<int> last_peer = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  RankState& state(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  std::size_t wait_for(int rank, std::span<const Waitable* const> what, Mode mode);
  static std::size_t first_over(std::span<const Waitable* const> what);
  std::size_t earliest_over(const RankState& me) const;
  bool is_settled(const RankState& me) const;
  void park(RankState& me, Lock& lock, Time deadline);
  void wake(RankState& other);
  int looking() const;
  void offer_jobs();
  bool is_last_awake() const;
  bool decide(Lock& lock);
  bool run_job(int rank, Lock& lock);
  void help();
  void fail_locked(const std::string& message);

  // observe.cpp: the ranks as errors describe them.
  class Observer;
  std::string diagnose(int rank, double waited_seconds) const;
  std::string diagnose_any() const;  // of the first rank that waits
  std::vector<int> missing_of(int rank) const;

  const WorldOptions options_;
  const int cores_;
  const bool has_own_core_;  // each rank
  const int looks_;          // before a rank sleeps
  std::vector<std::unique_ptr<RankState>> ranks_;

  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::atomic<int> job_count_ = 0;

  int running_;      // ranks that are neither parked nor finished
  int parked_ = 0;   // and not woken
  int waiting_ = 0;  // in block(), parked or not
  std::uint64_t jobs_done_ = 0;
  int undecided_ = 0;  // virtual time: in wait_any or done()
  WireQueue<WireMessage> wire_messages_;
  std::optional<SharedWires> wires_;  // virtual time
  std::set<std::string> names_;
  std::atomic<bool> failed_ = false, traced_ = false;
  std::string failure_;

  // Wall time: does jobs while every rank computes.
  std::condition_variable helper_wake_;
  bool helper_busy_ = false, stop_ = false;
  std::thread helper_;
};

}  // namespace aisc::thread
