// Traces of ranks that meet, and of those that do not, as a person reads them.
#include "11_gpt_3d/waits_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What `body` leaves in the traces of its ranks, also of those that an error carries away.
std::string report_of(int ranks, const std::function<void(const Rank&)>& body) {
  const TemporaryFolder folder;
  std::vector<std::string> paths(static_cast<std::size_t>(ranks));
  const LaunchOptions options{.ranks = ranks, .record_trace = true, .bind = false};
  try {
    launch(options, [&](const Rank& rank) {
      const auto r = static_cast<std::size_t>(rank.world.rank());
      std::exception_ptr error;
      try {
        body(rank);
      } catch (...) {
        error = std::current_exception();
      }
      paths[r] = folder.path("trace.rank_" + std::to_string(r) + ".json");
      rank.trace.write_chrome_json(paths[r]);
      if (error) std::rethrow_exception(error);
    });
  } catch (const Error&) {  // the ranks say that one is missing; the report says which
  }
  return waits_report(paths);
}

void sum(Communicator& ranks) {
  CpuDevice host;
  const Tensor x = Tensor::zeros({16}, DType::F32, host);
  ranks.all_reduce(x).wait();
}

// Of three ranks the last leaves before their second sum.
TEST(WaitsReport, NamesTheRankThatHasNotCome) {
  const std::string report = report_of(3, [](const Rank& rank) {
    sum(rank.world);
    if (rank.world.rank() < 2) sum(rank.world);
  });
  EXPECT_THAT(report,
              HasSubstr("3 ranks, 3 of them with a trace; 5 calls, 2 of which never came "));
  for (const char* rank : {"rank 0 ", "rank 1 "})
    EXPECT_THAT(report,
                ::testing::ContainsRegex(std::string(rank) + " *world *all_reduce.16 x F32. "
                                                             "*since [0-9.]+ s   waits for 2\n"));
  EXPECT_THAT(report, AllOf(Not(HasSubstr("rank 2   ")),
                            HasSubstr("Look at rank 2: it computes, or has ended, and has not "
                                      "come.")));
}

// Through a rank that waits itself, in another group.
TEST(WaitsReport, FollowsWhoWaitsFromGroupToGroup) {
  const std::string report = report_of(4, [](const Rank& rank) {
    const int r = rank.world.rank();
    const auto tp = rank.world.split(r / 2, r, "tp");
    const auto dp = rank.world.split(r % 2, r, "dp");
    if (r == 1) sum(*dp);  // with rank 3, which leaves
    if (r < 2) sum(*tp);
  });
  EXPECT_THAT(report, ::testing::ContainsRegex("rank 0 .* tp .*waits for 1\n"));
  EXPECT_THAT(report, ::testing::ContainsRegex("rank 1 .* dp .*waits for 3\n"));
  EXPECT_THAT(report, AllOf(HasSubstr("Look at rank 3:"), Not(HasSubstr("Look at rank 1:")),
                            Not(HasSubstr("Look at rank 2:"))));
}

TEST(WaitsReport, KnowsMessagesFromBothSides) {
  const std::string report = report_of(3, [](const Rank& rank) {
    CpuDevice host;
    const Tensor x = Tensor::zeros({8}, DType::U8, host);
    const int r = rank.world.rank();
    if (r == 0) rank.world.send(x, 1).wait();
    if (r == 1) rank.world.recv(x, 0).wait();
    if (r == 1) rank.world.recv(x, 2).wait();
  });
  EXPECT_THAT(report, ::testing::ContainsRegex("rank 1 .*messages.*from 2.*waits for 2\n"));
  EXPECT_THAT(report, HasSubstr("Look at rank 2:"));
}

TEST(WaitsReport, OfARunThatEndedSaysWhoCameLast) {
  const std::string report = report_of(2, [](const Rank& rank) {
    for (int i = 0; i < 5; ++i) {
      CpuDevice host;
      const Tensor token = Tensor::zeros({1}, DType::U8, host);
      if (rank.world.rank() == 1) {  // begins the sum when it hears that rank 0 has begun it
        rank.world.recv(token, 0).wait();
        sum(rank.world);
      } else {
        const Tensor x = Tensor::zeros({16}, DType::F32, host);
        Work work = rank.world.all_reduce(x);
        rank.world.send(token, 1).wait();
        work.wait();
      }
    }
  });
  EXPECT_THAT(report, HasSubstr("No call is open."));
  const auto row = report.find("\n     1 ");
  ASSERT_NE(row, std::string::npos) << report;
  EXPECT_GE(std::stoi(report.substr(row + 7)), 5) << "all five sums\n" << report;
}

std::string trace_with(const std::string& name, int pid = 0) {
  return fmt::format(
      R"x({{"traceEvents": [{{"ph": "B", "name": "{}", "cat": "world", "pid": {}, "ts": 1.5,
            "args": {{"ranks": [0, 1]}}}}]}})x",
      name, pid);
}

TEST(WaitsReport, TakesARankWithoutATraceForDead) {
  const TemporaryFolder folder;
  const std::string path = folder.path("trace.json");
  write_file(path, trace_with("all_reduce(1 x F32)"));
  EXPECT_THAT(waits_report({path}),
              AllOf(HasSubstr("2 ranks, 1 of them with a trace"), HasSubstr("waits for 1"),
                    HasSubstr("Look at rank 1: it left no trace")));
}

TEST(WaitsReport, SaysWhatIsNoTrace) {
  const TemporaryFolder folder;
  const std::string path = folder.path("x.json");
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"{", "expected a trace.json"},
      {"[]", "expected a trace.json"},
      {R"({"traceEvents": []})", "no call between ranks"},
      {trace_with("all_reduce(1 x F32)", -1), "found process -1"},
      {trace_with("sun(1)"), "found a call 'sun(1)'"}};
  for (const auto& [text, said] : wrong) {
    write_file(path, text);
    EXPECT_TRUE(error_says([&] { waits_report({path}); }, {path, said})) << text;
  }
}

}  // namespace
}  // namespace aisc
