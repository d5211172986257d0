#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>

#include <exception>

#include "common/comm/backend/between_gpus.h"
#include "common/comm/backend/launch_processes.h"
#include "common/comm/mpi/mpi_communicator.h"
#include "common/core/error.h"
#include "common/core/system/machine.h"
#include "common/core/system/threads.h"

namespace aisc {
namespace {

using mpi::Outcome;

// The exception that is being handled, in words.
std::string what_now(bool& not_implemented) {
  try {
    throw;
  } catch (const NotImplemented& e) {
    not_implemented = true;
    return e.what();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

void run_rank(const std::shared_ptr<mpi::World>& world, const LaunchOptions& options,
              const std::function<void(Rank)>& body) {
  const mpi::Board& board = mpi::Session::get().board();
  omp_set_num_threads(board.share_of_cores());
  if (const auto cores = board.own_cores(); cores && options.bind)
    pthread_setaffinity_np(pthread_self(), sizeof *cores, &*cores);
  else if (omp_get_proc_bind() != omp_proc_bind_false)
    // Where the environment has OpenMP bind threads, it has bound every process's first thread to
    // the same core. (The teams of ranks with several threads it still puts side by side on the
    // same cores: a launcher that binds processes serves them better.)
    Cores(usable_cores()).release();
  if (board.share_of_cores() > 1) start_team(board.share_of_cores());
  const std::unique_ptr<Device> device = make_device(options.device, board.rank_on_node());
  Clock clock = Clock::wall(world->watchdog.origin());
  Trace trace(clock, world->rank());
  trace.record(options.record_trace);
  world->clock = &clock;
  world->trace = &trace;
  std::unique_ptr<Communicator> communicator =
      connect_gpus(mpi::make_communicator(world, world->everybody), *device, options);
  communicator->use_plans(options.plans);
  if (const auto& decorate = options.internals.decorate)
    communicator = decorate(std::move(communicator));
  body(Rank{*communicator, *device, clock, trace});
}

}  // namespace

void launch_processes(const LaunchOptions& options, const std::function<void(Rank)>& body) {
  mpi::Session& session = mpi::Session::get();
  if (options.ranks != 0 && options.ranks != session.size())
    fail(fmt::format("launch: {} ranks asked for, {} processes were started", options.ranks,
                     session.size()));
  if (session.running) fail("launch: called within launch()");
  const auto world = std::make_shared<mpi::World>(session, options);
  world->meet_all();
  std::exception_ptr exception;
  Outcome mine;
  const auto failed = [&] {  // with the exception that is being handled
    exception = std::current_exception();
    const std::string what = what_now(mine.not_implemented);
    // What a rank throws because another failed is not the cause, though it may come first.
    mine.kind = what == world->watchdog.failure() ? Outcome::Kind::Echo : Outcome::Kind::Failed;
    mine.text = mine.not_implemented ? what : fmt::format("rank {}: {}", world->rank(), what);
    world->watchdog.fail(fmt::format("rank {} failed: {}", world->rank(), what));
  };
  try {
    world->start_helper();
    // In a thread of its own, as ranks are that are threads. Signals interrupt the first thread,
    // which only waits: a handler that runs inside a product of oneDNN's corrupts memory.
    start_thread([&] {
      try {
        run_rank(world, options, body);
      } catch (...) {
        failed();
      }
    }).join();
  } catch (const Error&) {  // there are no threads for it
    failed();
  }
  world->clock = nullptr;
  world->trace = nullptr;
  const Outcome outcome = world->watchdog.finish(mine);
  world->close();
  if (exception && session.size() == 1) std::rethrow_exception(exception);
  if (outcome.kind == Outcome::Kind::Returned) return;
  if (outcome.not_implemented) throw NotImplemented(outcome.text);
  fail(outcome.text);
}

}  // namespace aisc
