#include "common/comm/thread/world.h"

#include <algorithm>
#include <utility>

#include "common/core/error.h"
#include "common/core/system/machine.h"
#include "common/core/system/threads.h"

namespace aisc::thread {
namespace {

// How often a rank looks before it sleeps. With a core of its own for about 100 microseconds, twice
// what putting it to sleep and waking it takes. Else it lets another rank run in between, which
// for a small operation is cheaper than sleeping, but only while few others have work to do.
constexpr int kSpins = 5000, kYields = 4;

}  // namespace

World::World(const WorldOptions& options)
    : options_(options),
      cores_(available_cores()),
      has_own_core_(options.ranks <= cores_),
      looks_(options.network ? 0
             : has_own_core_ ? kSpins
                             : kYields),
      running_(options.ranks) {
  for (int r = 0; r < options.ranks; ++r) ranks_.push_back(std::make_unique<RankState>());
  if (is_virtual()) wires_.emplace(*options_.network, options.ranks);
}

void World::stop() {
  {
    const Lock lock(mutex_);
    stop_ = true;
  }
  helper_wake_.notify_all();
  if (helper_.joinable()) helper_.join();
  jobs_.clear();  // they hold communicators' states, and these the world
}

const std::string* World::keep(const std::string& name) {
  const Lock lock(mutex_);
  return &*names_.insert(name).first;
}

void World::attach(int rank, Clock* clock, Trace* trace) {
  state(rank).clock = clock;
  state(rank).trace = trace;
}

void World::set_last_call(int rank, const Call& call, const Place& place) {
  RankState& me = state(rank);
  me.last_communicator.store(place.communicator, std::memory_order_relaxed);
  me.last_sequence.store(place.sequence, std::memory_order_relaxed);
  me.last_op.store(call.op, std::memory_order_relaxed);
  me.last_count.store(call.count, std::memory_order_relaxed);
  me.last_dtype.store(call.dtype, std::memory_order_relaxed);
  me.last_reduce.store(call.reduce, std::memory_order_relaxed);
  me.last_peer.store(call.peer, std::memory_order_relaxed);
}

int World::looking() const {
  int count = 0;
  for (const auto& rank : ranks_) count += rank->looking.load() ? 1 : 0;
  return count;
}

// Somebody should look at the jobs: a rank that waits anyway, or else the helper. In virtual time
// one rank is enough, and if none waits, whoever waits next does them.
void World::offer_jobs() {
  if (is_virtual()) {
    if (waiting_ > parked_ || parked_ == 0 || jobs_.empty()) return;
    const auto asleep = std::find_if(ranks_.begin(), ranks_.end(), [](const auto& rank) {
      return rank->parked.load() && !rank->woken;
    });
    wake(**asleep);
    return;
  }
  int wanted = jobs_.empty() || !jobs_.front()->is_shared() ? 1 : cores_ - looking();
  for (auto rank = ranks_.begin(); rank != ranks_.end() && wanted > 0 && parked_ > 0; ++rank)
    if ((*rank)->parked.load() && !(*rank)->woken) {
      wake(**rank);
      --wanted;
    }
  if (wanted <= 0 || looking() > 0 || stop_ || options_.ranks == 1) return;
  try {
    if (!helper_.joinable()) helper_ = start_thread([this] { help(); });
  } catch (const Error& e) {
    return fail_locked(e.what());
  }
  helper_wake_.notify_one();
}

void World::push(std::shared_ptr<Job> job) {
  const Lock lock(mutex_);
  if (has_failed()) return;
  jobs_.push_back(std::move(job));
  job_count_.fetch_add(1);
  if (is_virtual() || jobs_.back()->is_shared() || looking() == 0) offer_jobs();
}

// Called again and again by ranks that look: none of them sleeps because another is at the queue.
bool World::run_job(int rank) {
  Lock lock(mutex_, std::try_to_lock);
  return lock && run_job(rank, lock);
}

bool World::run_job(int rank, Lock& lock) {
  if (jobs_.empty()) return false;
  // Whoever comes takes the oldest. A shared job stays in front while it has pieces, so that
  // several ranks copy parts of one message; whoever took its last piece removes it.
  const std::shared_ptr<Job> job = jobs_.front();
  const auto remove = [&] {
    const auto found = std::find(jobs_.begin(), jobs_.end(), job);
    if (found == jobs_.end()) return;
    jobs_.erase(found);
    job_count_.fetch_sub(1);
  };
  if (!job->is_shared()) remove();
  ++jobs_done_;
  lock.unlock();
  const bool more = job->run_piece(rank);
  lock.lock();
  if (job->is_shared() && !more) remove();
  return true;
}

void World::help() {
  Lock lock(mutex_);
  while (!stop_) {
    if (jobs_.empty() || looking() > 0) {
      helper_wake_.wait(lock);
      continue;
    }
    helper_busy_ = true;
    run_job(-1, lock);
    helper_busy_ = false;
    if (running_ == 0 && parked_ > 0 && jobs_.empty()) fail_locked(diagnose_any());
  }
}

void World::fail(const std::string& message) {
  const Lock lock(mutex_);
  fail_locked(message);
}

void World::fail_locked(const std::string& message) {
  if (has_failed()) return;
  failure_ = message;
  failed_.store(true);
  jobs_.clear();
  wire_messages_.clear();
  job_count_.store(0);
  for (const auto& rank : ranks_) wake(*rank);
}

std::string World::failure() const {
  const Lock lock(mutex_);
  return failure_;
}

void World::throw_failure() const {
  if (has_failed()) aisc::fail(failure());
}

void World::finish(int rank) {
  Lock lock(mutex_);
  state(rank).finished = true;
  // A rank that leaves may be the last awake: then it decides for those that sleep whose turn it
  // is, or says that there is none.
  for (;;) {
    while (run_job(rank, lock)) continue;
    if (parked_ == 0 || !is_last_awake() || has_failed()) break;
    if (!decide(lock)) fail_locked(diagnose_any());  // the others wait for what nobody will do
  }
  --running_;
}

}  // namespace aisc::thread
