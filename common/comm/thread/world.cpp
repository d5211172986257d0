#include "common/comm/thread/world.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "common/core/error.h"
#include "common/core/system/machine.h"

namespace aisc::thread {
namespace {

// How often a rank looks before it sleeps. With a core of its own for about 100 microseconds, twice
// what putting it to sleep and waking it takes. Else it lets another rank run in between, which
// for a small operation is cheaper than sleeping, but only while few others have work to do.
constexpr int kSpins = 5000, kYields = 4;
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

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

std::size_t World::first_over(std::span<const Waitable* const> what) {
  for (std::size_t i = 0; i < what.size(); ++i)
    if (what[i]->over()) return i;
  return kNone;
}

std::size_t World::earliest_over(const RankState& me) const {
  std::size_t best = kNone;
  for (std::size_t i = 0; i < me.waits_for.size(); ++i) {
    const Waitable& it = *me.waits_for[i];
    if (it.over() && (best == kNone || it.end_seconds() < me.waits_for[best]->end_seconds()))
      best = i;
  }
  return best;
}

// Virtual time: which of several operations ends first is known only when nothing can happen
// before, which decide() finds out.
bool World::is_settled(const RankState& me) const {
  if (me.mode == Mode::Earliest) return me.decided;
  return me.decided || first_over(me.waits_for) != kNone;
}

std::size_t World::block(int rank, std::span<const Waitable* const> what) {
  return wait_for(rank, what, is_virtual() && what.size() > 1 ? Mode::Earliest : Mode::First);
}

bool World::is_over_by_now(int rank, const Waitable& what) {
  const Waitable* const one[] = {&what};
  if (!what.over()) wait_for(rank, one, Mode::Ask);
  return has_failed() || (what.over() && what.end_seconds() <= clock(rank).now());
}

// First looks for a while, which is enough when all ranks have a core each; then sleeps until
// something that it waits for is over, doing jobs that come up.
std::size_t World::wait_for(int rank, std::span<const Waitable* const> what, Mode mode) {
  RankState& me = state(rank);
  std::size_t index = mode == Mode::Earliest ? kNone : first_over(what);
  if (index != kNone) return index;

  me.looking.store(true, std::memory_order_relaxed);
  for (int round = 0; round < looks_ && index == kNone && !has_failed(); ++round) {
    if (job_count_.load(std::memory_order_relaxed) > 0 && run_job(rank))
      round = 0;
    else if (has_own_core_)
      pause();
    else
      std::this_thread::yield();
    index = first_over(what);
  }
  if (index == kNone) {
    Lock lock(mutex_);
    const Time start = std::chrono::steady_clock::now();
    const auto patience = std::chrono::duration_cast<Time::duration>(
        std::chrono::duration<double>(options_.timeout_seconds));
    Time deadline = start + patience;
    me.waits_for = what;
    ++waiting_;
    me.mode = mode;
    me.decided = false;
    undecided_ += mode != Mode::First;
    std::uint64_t jobs_before = jobs_done_;
    while (!is_settled(me) && !has_failed()) {
      if (run_job(rank, lock)) continue;
      const Time now = std::chrono::steady_clock::now();
      if (now >= deadline && ((mode == Mode::First && missing_of(rank).empty()) ||
                              (is_virtual() && jobs_done_ != jobs_before))) {
        deadline = now + patience;  // it is being worked on
        jobs_before = jobs_done_;
      } else if (now >= deadline) {
        fail_locked(diagnose(rank, std::chrono::duration<double>(now - start).count()));
      } else if (!is_last_awake()) {
        park(me, lock, deadline);
      } else if (!decide(lock)) {
        fail_locked(diagnose(rank, 0));  // nobody is left who could end this
      }
    }
    index = mode == Mode::Earliest ? earliest_over(me) : first_over(what);
    undecided_ -= mode != Mode::First;
    me.waits_for = {};
    --waiting_;
  }
  me.looking.store(false);
  if (job_count_.load() > 0) {  // somebody else has to look now
    const Lock lock(mutex_);
    if (is_virtual() || looking() == 0) offer_jobs();
  }
  if (index == kNone && mode != Mode::Ask) throw_failure();
  return index;
}

// A rank sleeps here, and nowhere else. Whoever makes something `over` looks at `parked` after it,
// this rank looks whether it is over after setting `parked`: one of them sees the other.
void World::park(RankState& me, Lock& lock, Time deadline) {
  me.woken = false;
  me.parked.store(true);
  if (!is_settled(me)) {
    me.looking.store(false);
    --running_;
    ++parked_;
    me.wake.wait_until(lock, deadline, [&] { return me.woken; });
    if (!me.woken) {  // too late: it wakes by itself
      ++running_;
      --parked_;
    }
    me.looking.store(true, std::memory_order_relaxed);
  }
  me.parked.store(false);
}

void World::wake(RankState& other) {
  if (!other.parked.load() || other.woken) return;
  other.woken = true;
  ++running_;
  --parked_;
  other.wake.notify_one();
}

void World::notify(int rank) {
  if (!state(rank).parked.load()) return;
  const Lock lock(mutex_);
  wake(state(rank));
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
  if (!helper_.joinable()) helper_ = std::thread([this] { help(); });
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

bool World::is_last_awake() const { return running_ == 1 && jobs_.empty() && !helper_busy_; }

void World::send_by_wire(WireMessage message) {
  const Lock lock(mutex_);
  const double sent = message.sent_seconds;
  const auto [from, issue, part] = std::tuple(message.from, message.issue, message.part);
  wire_messages_.push(sent, from, issue, part, std::move(message));
}

// Virtual time, when every rank waits: what is known so far is all that can happen up to the
// earliest of these events, so that it may happen now. True if there was one.
bool World::decide(Lock& lock) {
  RankState* first = nullptr;
  double first_seconds = std::numeric_limits<double>::infinity();
  if (undecided_ > 0)
    for (const auto& rank : ranks_) {
      if (rank->waits_for.empty() || rank->mode == Mode::First || rank->decided) continue;
      double seconds = rank->clock->now();
      if (rank->mode == Mode::Earliest) {
        const std::size_t index = earliest_over(*rank);
        if (index == kNone) continue;
        seconds = std::max(seconds, rank->waits_for[index]->end_seconds());
      }
      if (seconds < first_seconds) {
        first = rank.get();
        first_seconds = seconds;
      }
    }
  if (!wire_messages_.empty() && wire_messages_.next_seconds() <= first_seconds) {
    const WireMessage message = wire_messages_.pop();
    const Passage passage =
        wires_->pass(message.from, message.to, message.bytes, message.sent_seconds);
    lock.unlock();
    message.deliver(passage);
    lock.lock();
    return true;
  }
  if (!first) return false;
  first->decided = true;
  wake(*first);
  return true;
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
  for (;;) {
    while (run_job(rank, lock)) continue;
    if (parked_ == 0 || !is_last_awake() || has_failed()) break;
    if (!decide(lock)) fail_locked(diagnose_any());  // the others wait for what nobody will do
  }
  --running_;
}

}  // namespace aisc::thread
