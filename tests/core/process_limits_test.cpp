// Limits of this process, set and asked for: files and threads.
#include "common/core/system/process_limits.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cstddef>

#include "common/core/error.h"
#include "common/core/system/threads.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// A limit of this process is lower while it lives.
class Lowered {
 public:
  Lowered(__rlimit_resource which, rlim_t soft) : which_(which) {
    getrlimit(which_, &before_);
    rlimit limit = before_;
    limit.rlim_cur = soft;
    setrlimit(which_, &limit);
  }
  ~Lowered() { setrlimit(which_, &before_); }
  Lowered(const Lowered&) = delete;
  Lowered& operator=(const Lowered&) = delete;

  rlim_t most() const { return before_.rlim_max; }

 private:
  const __rlimit_resource which_;
  rlimit before_{};
};

// No thread starts while it lives: the stack of each would be larger than the address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 50);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(ProcessLimits, OpenFilesAreRaisedAsFarAsTheyMay) {
  const Lowered files(RLIMIT_NOFILE, 64);
  require_open_files(64, "a test");
  require_open_files(65, "a test");
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(limit.rlim_cur, 65u);
  if (files.most() == RLIM_INFINITY) return;
  const auto too_many = static_cast<std::int64_t>(files.most()) + 1;
  EXPECT_TRUE(error_says([&] { require_open_files(too_many, "a test"); },
                         {"a test opens up to", "65 are allowed", "ulimit -n"}));
}

TEST(ProcessLimits, FilesThatMayNotBeAsLongAreTold) {
  const Lowered bytes(RLIMIT_FSIZE, 3'000'000);
  require_file_bytes(3'000'000, "a test");
  EXPECT_TRUE(error_says([] { require_file_bytes(4'500'000, "a test"); },
                         {"a test writes files of 4.5 MB", "above 3.0 MB", "ulimit -f"}));
}

TEST(Threads, RunAndMakeATeam) {
  std::atomic<int> ran = 0;
  start_thread([&] { ++ran; }).join();
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(can_start_threads(3));
  start_team(3);
#pragma omp parallel num_threads(3)
  ++ran;
  EXPECT_EQ(ran, 4);
}

TEST(Threads, ThatTheSystemRefusesAreAnErrorThatSaysWhy) {
  const NoThreads none;
  EXPECT_FALSE(can_start_threads(1));
  EXPECT_TRUE(error_says([] { start_thread([] {}); },
                         {"starts no more threads", "fewer threads or ranks", "ulimit -u"}));
  EXPECT_TRUE(error_says([] { start_team(4); },
                         {"starts no more than 1 of 4 threads", "ulimit -v", "pids.max"}));
}

}  // namespace
}  // namespace aisc
