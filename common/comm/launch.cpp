#include "common/comm/launch.h"

#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/backend/between_gpus.h"
#include "common/comm/backend/launch_processes.h"
#include "common/comm/backend/staged_communicator.h"
#include "common/comm/thread/thread_communicator.h"
#include "common/core/error.h"
#include "common/core/system/machine.h"
#include "common/core/system/threads.h"

namespace aisc {
namespace {

constexpr int kStuckExitStatus = 70;  // EX_SOFTWARE of sysexits.h
constexpr double kLongTimeoutSeconds = 1e6;
constexpr int kManyRanks = 64;
constexpr std::int64_t kMostMessageBytes = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kSmallStackBytes = 256 * 1024;

// What all threads of one launch share.
struct Run {
  const LaunchOptions& options;
  const std::function<void(Rank)>& body;
  std::shared_ptr<thread::CommunicatorState> state;

  std::mutex mutex;
  std::condition_variable one_returned;
  int returned = 0;
  std::exception_ptr first_exception;
  bool has_cause = false;            // it is not an echo of another rank's
  const Clock wall = Clock::wall();  // one origin: traces of all ranks lie side by side
};

struct RankThread {
  Run* run;
  int rank;
  pthread_t thread;
};

// Binds the calling thread to `count` of `all` from `first` on; a system that refuses is none the
// worse for it.
void bind(const std::vector<int>& all, std::size_t first, std::size_t count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (std::size_t i = first; i < first + count; ++i) CPU_SET(all[i], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// The exception with its rank, which one rank alone need not be told.
std::exception_ptr named(const Run& run, int rank, std::exception_ptr exception) {
  if (run.options.ranks == 1) return exception;
  try {
    std::rethrow_exception(std::move(exception));
  } catch (const NotImplemented&) {
    return std::current_exception();
  } catch (const std::exception& e) {
    return std::make_exception_ptr(Error(fmt::format("rank {}: {}", rank, e.what())));
  } catch (...) {
    return std::current_exception();
  }
}

std::string what_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

void use_cores(const Run& run, int rank) {
  const std::vector<int> all = usable_cores();
  const auto ranks = static_cast<std::size_t>(run.options.ranks);
  const std::size_t share = std::max<std::size_t>(1, all.size() / ranks);
  const auto threads = static_cast<int>(share);
  omp_set_num_threads(threads);
  const bool has_cores = ranks <= all.size() && !run.options.network;
  if (run.options.bind && ranks > 1 && has_cores)
    bind(all, static_cast<std::size_t>(rank) * share, share);
  if (threads > 1) start_team(threads);  // its threads stay on the cores of this one
  // Where the environment binds threads, OpenMP would put the teams of all ranks on the same cores,
  // from the first on: each has taken its place once, and then moves to its rank's cores for good.
  if (omp_get_proc_bind() == omp_proc_bind_false) return;
#pragma omp parallel num_threads(threads)
  if (has_cores)
    bind(all, static_cast<std::size_t>(rank) * share, share);
  else
    bind(all, 0, all.size());
}

void run_rank(Run& run, int rank) {
  const LaunchOptions& options = run.options;
  thread::World& world = *run.state->world;
  try {
    use_cores(run, rank);
    Clock clock = options.network ? Clock::virtual_time(options.pace) : run.wall;
    const std::unique_ptr<Device> device =
        options.make_device ? options.make_device(rank, clock) : make_device(options.device, rank);
    Trace trace(clock, rank);
    trace.record(options.record_trace);
    world.attach(rank, &clock, &trace);
    std::unique_ptr<Communicator> communicator =
        connect_gpus(thread::make_communicator(run.state, rank), *device, options);
    communicator->use_plans(options.plans);
    if (const auto& decorate = options.internals.decorate)
      communicator = decorate(std::move(communicator));
    run.body(Rank{*communicator, *device, clock, trace});
  } catch (...) {
    // What a rank throws because another failed is not the cause, though it may come first.
    const std::string what = what_of(std::current_exception());
    const bool is_cause = !world.has_failed() || what != world.failure();
    const std::lock_guard lock(run.mutex);
    if (!run.first_exception || (is_cause && !run.has_cause))
      run.first_exception = named(run, rank, std::current_exception());
    run.has_cause = run.has_cause || is_cause;
    world.fail(fmt::format("rank {} failed: {}", rank, what));
  }
  world.finish(rank);
}

void* thread_main(void* argument) {
  const RankThread& me = *static_cast<RankThread*>(argument);
  run_rank(*me.run, me.rank);
  const std::lock_guard lock(me.run->mutex);
  ++me.run->returned;
  me.run->one_returned.notify_all();
  return nullptr;
}

// Waits until all ranks have returned. After a failure they are given the timeout for it.
void wait_for_ranks(Run& run, int started) {
  const auto patience = std::chrono::duration<double>(run.options.timeout_seconds);
  std::unique_lock lock(run.mutex);
  const auto all_returned = [&] { return run.returned == started; };
  const auto look_again = std::chrono::milliseconds(100);
  while (!run.one_returned.wait_for(lock, look_again, all_returned)) {
    if (!run.state->world->has_failed()) continue;
    if (run.one_returned.wait_for(lock, patience, all_returned)) return;
    std::fprintf(
        stderr, "%s\n%d of %d ranks have not returned %.1f s later; the process ends\n",
        (run.first_exception ? what_of(run.first_exception) : run.state->world->failure()).c_str(),
        started - run.returned, started, run.options.timeout_seconds);
    std::fflush(stderr);
    std::_Exit(kStuckExitStatus);
  }
}

void check(const LaunchOptions& options) {
  if (options.ranks < 0)
    fail(fmt::format("launch: {} ranks, 0 (as many as there are) or more expected", options.ranks));
  if (!(options.timeout_seconds > 0 && options.timeout_seconds <= kLongTimeoutSeconds))
    fail(fmt::format("launch: timeout_seconds {} is not in (0, {}]", options.timeout_seconds,
                     kLongTimeoutSeconds));
  const LaunchOptions::Internals& sizes = options.internals;
  if (sizes.chunk_bytes < 1 || sizes.inline_bytes < 0)
    fail(fmt::format("launch: chunk_bytes {} or inline_bytes {} is too small", sizes.chunk_bytes,
                     sizes.inline_bytes));
  if (sizes.message_bytes < 1 || sizes.message_bytes > kMostMessageBytes)
    fail(fmt::format("launch: message_bytes {} is not in [1, {}]", sizes.message_bytes,
                     kMostMessageBytes));
  if (options.make_device && !options.network)
    fail("launch: devices of one's own (make_device) are for virtual time: a network is missing");
  if (options.network) options.network->check(options.ranks);
}

void launch_threads(const LaunchOptions& options, const std::function<void(Rank)>& body) {
  // Who sleeps along is late without being lost.
  const double timeout = options.pace > 0 ? kLongTimeoutSeconds : options.timeout_seconds;
  thread::WorldOptions world_options{options.ranks, timeout, options.network,
                                     options.internals.chunk_bytes, options.internals.inline_bytes};
  Run run{options, body, thread::make_world_state(world_options, "world"), {}, {}, 0, {}};

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  std::size_t stack = options.internals.stack_bytes;
  if (stack == 0 && options.network && options.ranks > kManyRanks) stack = kSmallStackBytes;
  if (stack > 0) pthread_attr_setstacksize(&attributes, stack);
  std::vector<RankThread> threads;
  threads.reserve(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.push_back({&run, rank, {}});
    if (pthread_create(&threads.back().thread, &attributes, thread_main, &threads.back()) != 0) {
      threads.pop_back();
      break;
    }
  }
  pthread_attr_destroy(&attributes);
  const int started = static_cast<int>(threads.size());
  if (started < options.ranks)
    run.state->world->fail(
        fmt::format("launch: the system starts no more than {} of {} threads: {}", started,
                    options.ranks, kThreadsAreLimited));
  wait_for_ranks(run, started);
  for (RankThread& thread : threads) pthread_join(thread.thread, nullptr);
  run.state->world->stop();
  if (run.first_exception) std::rethrow_exception(run.first_exception);
  run.state->world->throw_failure();
}

bool uses_processes(const LaunchOptions& options) {
  using Backend = LaunchOptions::Backend;
  if (options.backend == Backend::Auto) return !options.network && started_processes();
  if (options.backend == Backend::Mpi && options.network)
    fail("launch: ranks in virtual time are threads, not processes");
  return options.backend == Backend::Mpi;
}

}  // namespace

void launch(const LaunchOptions& options, const std::function<void(Rank)>& body) {
  check(options);
  if (uses_processes(options)) return launch_processes(options, body);
  LaunchOptions with_ranks = options;
  with_ranks.ranks = std::max(1, options.ranks);
  launch_threads(with_ranks, body);
}

std::unique_ptr<Communicator> make_self_communicator(std::string name) {
  return make_staged_communicator(thread::make_communicator(thread::make_world_state({}, name), 0));
}

}  // namespace aisc
