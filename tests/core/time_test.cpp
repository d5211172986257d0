// Clocks, traces in virtual time (exact, so compared with ==), and work that somebody has to wait
// for.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/system/files.h"
#include "common/core/tensor.h"
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

TEST(Clock, ThatIsPacedSleepsAlong) {
  const Clock wall = Clock::wall();
  Clock clock = Clock::virtual_time(1e-3);  // a millisecond for a virtual second
  clock.advance(5);
  clock.advance_to(20);
  EXPECT_EQ(clock.now(), 20);
  EXPECT_GE(wall.now(), 0.02);
}

TEST(Clock, OfTheWallTellsTheSecondsOfAnyMoment) {
  const Clock clock = Clock::wall();
  const auto moment = std::chrono::steady_clock::now();
  const double seconds = clock.seconds_at(moment);
  EXPECT_DOUBLE_EQ(clock.seconds_at(moment + std::chrono::seconds(2)), seconds + 2);
  EXPECT_GE(clock.now(), seconds);
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

TEST_F(Traces, KnowThePartOfTheInnermostSpan) {
  EXPECT_EQ(trace_.part(), "");
  {
    const auto outer = trace_.span("attention");
    {
      const auto inner = trace_.span("product", "qkv");
      EXPECT_EQ(trace_.part(), "product");
    }
    EXPECT_EQ(trace_.part(), "attention");
  }
  EXPECT_EQ(trace_.part(), "");
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

// A GPU in virtual time: work takes its seconds where somebody waits for it.
class LateDevice final : public Device {
 public:
  explicit LateDevice(Clock& clock) : Device(0), clock_(clock) {}
  const char* name() const override { return "late"; }
  DeviceKind kind() const override { return DeviceKind::Cuda; }
  void ask(double seconds) { asked_seconds_ += seconds; }
  void break_down() { broken_ = true; }
  void synchronize() override {
    clock_.advance(std::exchange(asked_seconds_, 0));
    if (std::exchange(broken_, false)) fail("the device broke down");
  }

 private:
  void* do_allocate(std::size_t /*bytes*/) override { return nullptr; }
  void do_free(void* /*block*/) noexcept override {}
  void do_poison(void* /*block*/, std::size_t /*bytes*/) override {}
  Work do_copy(View /*to*/, ConstView /*from*/, Queue /*queue*/) override { return Work(); }
  void do_zero(void* /*block*/, std::size_t /*bytes*/) override {}

  Clock& clock_;
  double asked_seconds_ = 0;
  bool broken_ = false;
};

TEST_F(Traces, WaitForAWatchedGpuOnlyWhileRecording) {
  LateDevice gpu(clock_);
  const auto work = [&] {
    gpu.ask(0.25);  // of nobody's span
    const auto outer = trace_.span("layer");
    gpu.ask(1);
    {
      const auto inner = trace_.span("matmul");
      gpu.ask(2);
    }
    gpu.ask(4);
  };
  trace_.record(true);
  work();  // not watched
  EXPECT_EQ(clock_.now(), 0);
  gpu.synchronize();
  trace_.reset();
  trace_.watch(&gpu);
  work();
  EXPECT_EQ(trace_.seconds_by_part(), (std::map<std::string, double>{{"layer", 5}, {"matmul", 2}}));
  trace_.record(false);
  const double before = clock_.now();
  work();
  EXPECT_EQ(clock_.now(), before);
  EXPECT_EQ(trace_.seconds_by_part().at("layer"), 5) << "times of launching do not count";
}

TEST_F(Traces, ThrowLaterWhatTheGpuThrowsAtTheEndOfASpan) {
  LateDevice gpu(clock_);
  trace_.watch(&gpu);
  trace_.record(true);
  const auto broken = [&] {
    const auto span = trace_.span("matmul");
    gpu.break_down();
  };
  broken();
  EXPECT_TRUE(error_says([&] { const auto span = trace_.span("layer"); }, {"broke down"}));
  broken();
  EXPECT_TRUE(error_says([&] { trace_.record(false); }, {"broke down"}));
  const auto span = trace_.span("layer");  // once is enough
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

TEST_F(Traces, GiveWhatRunsBesideTheThreadsNamedLanes) {
  const auto main = trace_.span("main");
  trace_.add("dp", "unseen", 0, 1);  // not recording
  trace_.record(true);
  trace_.add("dp", "a", 0, 2);
  trace_.add("dp", "b", 2, 3);    // after a: the same lane
  trace_.add("dp", "c", 2.5, 4);  // overlaps b: a lane of its own
  trace_.add("tp", "d", 0, 1);
  const std::vector<TraceEvent> events = trace_.events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].name, "a");
  EXPECT_EQ(events[0].part, "dp");
  EXPECT_EQ(events[0].begin_seconds, 0);
  EXPECT_EQ(events[0].end_seconds, 2);
  EXPECT_EQ(events[0].lane, 1);
  EXPECT_EQ(events[1].lane, 1);
  EXPECT_EQ(events[2].lane, 2);
  EXPECT_EQ(events[3].lane, 3);
  EXPECT_TRUE(trace_.seconds_by_part().empty());

  const nlohmann::json json = nlohmann::json::parse(trace_.to_chrome_json());
  const nlohmann::json& rows = json.at("traceEvents");
  EXPECT_EQ(rows.at(1).at("name"), "thread_name");
  EXPECT_EQ(rows.at(1).at("tid"), 1);
  EXPECT_EQ(rows.at(1).at("args").at("name"), "dp");
  EXPECT_EQ(rows.at(2).at("args").at("name"), "dp 2");
}

// Who looks for who waits for whom needs the calls that never came back.
TEST_F(Traces, KeepCallsThatNeverEnd) {
  trace_.record(true);
  const std::int64_t over = trace_.begin_call("dp", "over", 1, {0, 1});
  trace_.begin_call("dp", "open", 2, {0, 1});
  trace_.end_call(over, 1.5, 3);
  ASSERT_EQ(trace_.events().size(), 1u);
  EXPECT_EQ(trace_.events()[0].ranks, (std::vector<int>{0, 1}));
  std::string rows;
  const nlohmann::json json = nlohmann::json::parse(trace_.to_chrome_json());
  for (const nlohmann::json& row : json.at("traceEvents"))
    if (row.at("ph") != "M") rows += row.at("ph").dump() + row.at("args").at("ranks").dump();
  EXPECT_EQ(rows, "\"B\"[0,1]\"X\"[0,1]");
}

TEST_F(Traces, HaveNumbersOfAMoment) {
  trace_.count("rows", {{"expert 0", 5}});
  trace_.record(true);
  clock_.advance(2);
  trace_.count("rows", {{"expert 0", 7}, {"expert 1", 1}});
  const nlohmann::json json = nlohmann::json::parse(trace_.to_chrome_json());
  const nlohmann::json& rows = json.at("traceEvents");
  ASSERT_EQ(rows.size(), 2u) << "only while recording";
  EXPECT_EQ(rows[1].at("ph"), "C");
  EXPECT_EQ(rows[1].at("name"), "rows");
  EXPECT_EQ(rows[1].at("ts"), 2e6);
  EXPECT_EQ(rows[1].at("args"), (nlohmann::json{{"expert 0", 7}, {"expert 1", 1}}));
  trace_.reset();
  EXPECT_EQ(nlohmann::json::parse(trace_.to_chrome_json()).at("traceEvents").size(), 1u);
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

TEST(Work, OfAnyKindCanBeAskedInTurn) {
  struct Countdown final : PendingOperation {
    explicit Countdown(int asked) : left(asked) {}
    void wait() override {}
    bool done() override { return --left <= 0; }
    int left;
  };
  Countdown slow(1000), quick(3);
  PendingOperation* const both[] = {&slow, &quick};
  EXPECT_EQ(slow.wait_any(both), 1u);
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
