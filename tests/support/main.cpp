// Runs the tests. Of processes (mpirun) each runs the same tests in the same order and ends with a
// status of its own; rank 0 prints as GoogleTest does, the others only what failed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "common/comm/launch.h"

namespace aisc {
namespace {

class PrintsFailures final : public ::testing::EmptyTestEventListener {
 public:
  explicit PrintsFailures(int rank) : prefix_(fmt::format("rank {}: ", rank)) {}

 private:
  void OnTestPartResult(const ::testing::TestPartResult& part) override {
    if (part.failed())
      say(fmt::format("{}:{}: Failure\n{}", part.file_name() ? part.file_name() : "unknown file",
                      part.line_number(), part.message()));
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (test.result()->Failed())
      say(fmt::format("[  FAILED  ] {}.{}", test.test_suite_name(), test.name()));
  }

  // One write for all lines, which those of other ranks then do not come between.
  void say(const std::string& lines) const {
    std::string text = prefix_;
    for (const char c : lines) text += c == '\n' ? c + prefix_ : std::string(1, c);
    std::fputs((text + "\n").c_str(), stderr);
  }

  const std::string prefix_;
};

// A run under mpirun in which nothing was tested has gone wrong: it was started for what it tests.
bool has_tested(const ::testing::UnitTest& tests) {
  const int tested = tests.successful_test_count() + tests.failed_test_count();
  if (tested == 0) std::fputs("nothing was tested on this number of processes\n", stderr);
  return tested > 0;
}

int run(int argc, char** argv) {
  const std::optional<Processes> processes = started_processes();
  ::testing::InitGoogleTest(&argc, argv);
  if (!processes) return RUN_ALL_TESTS();
  if (processes->rank > 0) {
    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    const std::unique_ptr<::testing::TestEventListener> unused(
        listeners.Release(listeners.default_result_printer()));
    listeners.Append(new PrintsFailures(processes->rank));  // which takes it over
  }
  const int status = RUN_ALL_TESTS();
  return has_tested(*::testing::UnitTest::GetInstance()) ? status : 1;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  try {
    return aisc::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
