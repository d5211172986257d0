#include "common/core/system/threads.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "common/core/error.h"

namespace aisc {
namespace {

// How many of `wanted` threads can run at once beside those that there are.
int startable(int wanted) {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(wanted));
  try {
    while (static_cast<int>(threads.size()) < wanted)
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return over; });
      });
  } catch (const std::system_error&) {  // what the caller asks for
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(threads.size());
}

}  // namespace

const char* const kThreadsAreLimited =
    "fewer threads or ranks take less; `ulimit -u` (processes), `ulimit -v` (address space, of "
    "which "
    "each takes its stack, `ulimit -s`) and a container's or job's pids.max limit them";

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    fail(fmt::format("the system starts no more threads ({}): {}", e.code().message(),
                     kThreadsAreLimited));
  }
}

bool can_start_threads(int count) { return startable(count) >= count; }

void start_team(int threads) {
  const int others = startable(threads - 1);
  if (others < threads - 1)
    fail(fmt::format("the system starts no more than {} of {} threads: {}", others + 1, threads,
                     kThreadsAreLimited));
#pragma omp parallel num_threads(threads)
  {}
}

}  // namespace aisc
