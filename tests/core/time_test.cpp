// Clocks, traces in virtual time (exact, so compared with ==), and work that somebody has to wait
// for.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/files.h"
#include "common/core/trace.h"
#include "common/core/work.h"
#include "tests/support/error_says.h"
#include "tests/support/trace_checks.h"

namespace aisc {
namespace {

// ---- clock --------------------------------------------------------------------------------------

TEST(Clock, VirtualTimeMovesOnlyWhenAdvanced) {
  Clock clock = Clock::virtual_time();
  EXPECT_TRUE(clock.is_virtual());
  EXPECT_EQ(clock.now(), 0);
  clock.advance(1.5);
  EXPECT_EQ(clock.now(), 1.5);
  clock.advance_to(4);
  EXPECT_EQ(clock.now(), 4);
  clock.advance_to(2);  // past: no effect
  EXPECT_EQ(clock.now(), 4);
  clock.advance(0);
  EXPECT_EQ(clock.now(), 4);
}

TEST(Clock, RefusesToGoBack) {
  Clock clock = Clock::virtual_time();
  EXPECT_TRUE(error_says([&] { clock.advance(-1); }, {"0 or more", "-1"}));
  EXPECT_TRUE(error_says([&] { clock.advance(NAN); }, {"0 or more", "nan"}));
}

TEST(Clock, OfTheWallCannotBePushed) {
  Clock clock = Clock::wall();
  const double before = clock.now();
  EXPECT_GE(before, 0);
  EXPECT_GE(clock.now(), before);
  EXPECT_TRUE(error_says([&] { clock.advance(1); }, {"wall clock cannot be advanced"}));
  EXPECT_TRUE(error_says([&] { clock.advance_to(1e9); }, {"wall clock cannot be advanced"}));
}

// ---- trace --------------------------------------------------------------------------------------

class Traces : public ::testing::Test {
 protected:
  // forward: 2 s of its own, a product of 3 s, a copy of 0.5 s inside the product.
  void run_forward() {
    const auto forward = trace_.span("layer", "block 0");
    clock_.advance(1);
    {
      const auto product = trace_.span("matmul");
      clock_.advance(2);
      {
        const auto copy = trace_.span("copy");
        clock_.advance(0.5);
      }
      clock_.advance(1);
    }
    clock_.advance(1);
  }
  Clock clock_ = Clock::virtual_time();
  Trace trace_{clock_, 3};
};

TEST_F(Traces, TimeOfAPartLeavesOutWhatIsNestedInIt) {
  run_forward();
  const std::map<std::string, double> expected{{"layer", 2}, {"matmul", 3}, {"copy", 0.5}};
  EXPECT_EQ(trace_.seconds_by_part(), expected);
  run_forward();
  EXPECT_EQ(trace_.seconds_by_part().at("layer"), 4);
}

TEST_F(Traces, PartsAddUpEvenWhenAPartIsNestedInItself) {
  {
    const auto outer = trace_.span("layer");
    clock_.advance(1);
    const auto inner = trace_.span("layer");
    clock_.advance(2);
  }
  EXPECT_EQ(trace_.seconds_by_part().at("layer"), 3);
}

TEST_F(Traces, KeepSingleSpansOnlyWhileRecording) {
  run_forward();
  EXPECT_TRUE(trace_.events().empty());
  trace_.record(true);
  run_forward();
  trace_.record(false);
  run_forward();
  const std::vector<TraceEvent> events = trace_.events();
  ASSERT_EQ(events.size(), 3u);  // in the order in which they ended
  EXPECT_EQ(events[0].name, "copy");
  EXPECT_EQ(events[1].name, "matmul");
  EXPECT_EQ(events[2].name, "block 0");
  EXPECT_EQ(events[2].part, "layer");
  EXPECT_EQ(events[2].begin_seconds, 5.5);
  EXPECT_EQ(events[2].end_seconds, 11);
  EXPECT_TRUE(overlapping(events, "copy", "matmul"));
  trace_.reset();
  EXPECT_TRUE(trace_.events().empty());
  EXPECT_TRUE(trace_.seconds_by_part().empty());
}

TEST_F(Traces, AMovedSpanEndsOnce) {
  {
    auto span = trace_.span("copy");
    const auto owner = std::move(span);
    clock_.advance(2);
  }
  clock_.advance(5);
  EXPECT_EQ(trace_.seconds_by_part().at("copy"), 2);
}

TEST_F(Traces, GiveEachThreadItsLane) {
  trace_.record(true);
  { const auto here = trace_.span("main"); }
  const auto outer = trace_.span("outer");
  std::jthread([&] { const auto there = trace_.span("other"); }).join();
  const std::vector<TraceEvent> events = trace_.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].lane, 0);
  EXPECT_EQ(events[1].lane, 1);
}

TEST_F(Traces, AreWrittenAsChromeJson) {
  trace_.record(true);
  run_forward();
  { const auto odd = trace_.span("layer", "a \"quoted\" name\n"); }
  const std::string path = ::testing::TempDir() + "aisc_trace_test.json";
  trace_.write_chrome_json(path);
  const nlohmann::json json = nlohmann::json::parse(read_file(path));
  std::remove(path.c_str());
  const nlohmann::json& rows = json.at("traceEvents");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].at("ph"), "M");
  EXPECT_EQ(rows[0].at("args").at("name"), "rank 3");
  EXPECT_EQ(rows[3].at("ph"), "X");
  EXPECT_EQ(rows[3].at("name"), "block 0");
  EXPECT_EQ(rows[3].at("cat"), "layer");
  EXPECT_EQ(rows[3].at("pid"), 3);
  EXPECT_EQ(rows[3].at("tid"), 0);
  EXPECT_EQ(rows[3].at("ts"), 0);  // microseconds
  EXPECT_EQ(rows[3].at("dur"), 5.5e6);
  EXPECT_EQ(rows[4].at("name"), "a \"quoted\" name\n");
}

TEST_F(Traces, NameTheFileThatCannotBeWritten) {
  EXPECT_TRUE(error_says([&] { trace_.write_chrome_json("/no/such/folder/trace.json"); },
                         {"/no/such/folder/trace.json", "No such file"}));
}

// ---- work ---------------------------------------------------------------------------------------

struct Counts {
  int waits = 0, destroyed = 0;
};

class CountedOperation : public PendingOperation {
 public:
  CountedOperation(Counts& counts, bool fails) : counts_(counts), fails_(fails) {}
  ~CountedOperation() override { ++counts_.destroyed; }
  void wait() override {
    ++counts_.waits;
    if (fails_) fail("the peer is gone");
  }
  bool done() override { return false; }

 private:
  Counts& counts_;
  const bool fails_;
};

Work make_work(Counts& counts, bool fails = false) {
  return Work(std::make_unique<CountedOperation>(counts, fails));
}

TEST(Work, OfNothingIsDone) {
  Work work;
  EXPECT_TRUE(work.done());
  work.wait();
}

TEST(Work, IsWaitedForOnce) {
  Counts counts;
  {
    Work work = make_work(counts);
    EXPECT_FALSE(work.done());
    work.wait();
    EXPECT_TRUE(work.done());
    EXPECT_EQ(counts.destroyed, 1) << "its share of the tensors is given back";
    work.wait();
  }
  EXPECT_EQ(counts.waits, 1);
}

TEST(Work, IsWaitedForWhereItIsDropped) {
  Counts counts;
  { const Work work = make_work(counts); }
  EXPECT_EQ(counts.waits, 1);
  EXPECT_EQ(counts.destroyed, 1);
}

TEST(Work, ThrowsItsErrorFromWaitButNotFromTheDestructor) {
  Counts counts;
  Work work = make_work(counts, true);
  EXPECT_TRUE(error_says([&] { work.wait(); }, {"the peer is gone"}));
  EXPECT_TRUE(work.done());
  EXPECT_NO_THROW({ const Work dropped = make_work(counts, true); });
  EXPECT_EQ(counts.waits, 2);
  EXPECT_EQ(counts.destroyed, 2);
}

TEST(Work, MovesItsDutyToWait) {
  Counts first, second;
  {
    Work work = make_work(first);
    Work owner = std::move(work);
    EXPECT_EQ(first.waits, 0);
    owner = make_work(second);  // what it held before is waited for
    EXPECT_EQ(first.waits, 1);
    EXPECT_EQ(second.waits, 0);
  }
  EXPECT_EQ(first.waits, 1);
  EXPECT_EQ(second.waits, 1);
}

}  // namespace
}  // namespace aisc
