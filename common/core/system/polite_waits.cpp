#include "common/core/system/polite_waits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/core/system/machine.h"
#include "common/core/system/threads.h"

namespace aisc {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(200);
constexpr int kQuietLooks = 5;         // so many in a row, and others are taken to be gone
constexpr double kMostOfOthers = 0.3;  // cores: a system's own work, and how roughly it is counted

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::optional<double> seconds_of_cores(const std::vector<int>& cores) {
  std::set<std::string> names;
  for (const int core : cores) names.insert("cpu" + std::to_string(core));
  std::ifstream file("/proc/stat");
  double ticks = 0;
  std::size_t found = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0;
    if (words >> name >> user >> nice >> system && names.contains(name)) {
      ticks += user + nice + system;
      ++found;
    }
  }
  if (found == 0 || found < names.size()) return {};
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::optional<double> seconds_of_this_process() {
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) != 0) return {};
  return seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
}

class PoliteWaits::Watch {
 public:
  explicit Watch(int threads)
      : cores_(usable_cores()),
        most_(static_cast<double>(cores_.size()) - threads + kMostOfOthers),
        thread_([this] { watch(); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
    if (crowd_.joinable()) crowd_.join();
  }

 private:
  void watch() {
    std::optional<double> all = seconds_of_cores(cores_), mine = seconds_of_this_process();
    auto time = std::chrono::steady_clock::now();
    int quiet = 0;
    std::unique_lock lock(mutex_);
    while (all && mine && !changed_.wait_for(lock, kBetweenLooks, [&] { return over_; })) {
      const double all_before = *all, mine_before = *mine;
      const auto before = std::exchange(time, std::chrono::steady_clock::now());
      all = seconds_of_cores(cores_);
      mine = seconds_of_this_process();
      if (!all || !mine) return;
      const double others = (*all - all_before - (*mine - mine_before)) /
                            std::chrono::duration<double>(time - before).count();
      quiet = others > most_ ? 0 : quiet + 1;
      if (quiet == 0 && !crowded_) {
        crowded_ = true;
        try {
          crowd_ = std::thread([this] { crowd(); });
        } catch (const std::system_error&) {  // no more threads: then as if nobody looked
          return;
        }
      } else if (quiet >= kQuietLooks && crowded_) {
        crowded_ = false;
        changed_.notify_all();
        lock.unlock();
        crowd_.join();
        lock.lock();
      }
    }
  }

  // More threads than there are cores, asleep.
  void crowd() {
    const int count = static_cast<int>(cores_.size()) + 1;
    if (!can_start_threads(count)) return;  // OpenMP would end the process
#pragma omp parallel num_threads(count)
    {
#pragma omp master
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return over_ || !crowded_; });
      }
    }
  }

  std::vector<int> cores_;
  double most_;  // cores that others may use before they are in the way
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false, crowded_ = false;
  std::thread crowd_;
  std::thread thread_;
};

PoliteWaits::PoliteWaits(int threads) {
  bool told = false;
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"})
    told = told || std::getenv(name) != nullptr;
#ifdef __clang__
  told = true;  // another OpenMP
#endif
  if (told || threads <= 1) return;
  try {
    watch_ = std::make_unique<Watch>(threads);
  } catch (const std::system_error&) {  // no more threads
  }
}

PoliteWaits::~PoliteWaits() = default;

}  // namespace aisc
