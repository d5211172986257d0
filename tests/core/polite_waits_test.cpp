#include "common/core/system/polite_waits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "common/core/system/machine.h"

namespace aisc {
namespace {

double seconds_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(SecondsOfCores, GrowByWhatIsComputedThere) {
  const std::vector<int> cores = usable_cores();
  const auto all = seconds_of_cores(cores), mine = seconds_of_this_process();
  if (!all || !mine) GTEST_SKIP() << "this system does not tell who computes";
  const double begin = seconds_of_this_thread();
  while (seconds_of_this_thread() < begin + 0.3) {
  }
  EXPECT_GE(*seconds_of_this_process() - *mine, 0.29);
  EXPECT_GE(*seconds_of_cores(cores) - *all, 0.2);  // counted by samples, every 10 ms
}

TEST(SecondsOfCores, OfCoresThatThereAreNotAreNotTold) {
  EXPECT_EQ(seconds_of_cores({}), std::nullopt);
  EXPECT_EQ(seconds_of_cores({0, 1'000'000}), std::nullopt);
}

TEST(PoliteWaits, EndAtOnce) {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");  // tests have one
  const std::string before = policy ? policy : "";
  unsetenv("OMP_WAIT_POLICY");
  const auto begin = std::chrono::steady_clock::now();
  { const PoliteWaits waits(available_cores()); }
  { const PoliteWaits waits(1); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  if (policy) setenv("OMP_WAIT_POLICY", before.c_str(), 1);
}

}  // namespace
}  // namespace aisc
