// What a run writes down is there again when it goes on, and what came after its checkpoint is not.
#include "app/run_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

StepRow row(std::int64_t step, double validation_loss = std::nan("")) {
  StepRow r{.step = step,
            .loss = 1.0 / 3.0 + static_cast<double>(step),
            .learning_rate = 1e-3,
            .gradient_norm = 0.1,
            .seconds = 0.05,
            .tokens_per_second = 45'000.5,
            .flops_per_second = 1e9,
            .peak_flops = 2e9,
            .validation_loss = validation_loss};
  for (std::size_t p = 0; p <= kPurposeCount; ++p)
    r.peak_bytes[p] = (std::int64_t{1} << 40) + static_cast<std::int64_t>(p);
  return r;
}

TEST(StepRow, IsALineOfJsonAndComesBack) {
  for (const StepRow& r : {row(7), row(8, 2.0 / 3.0)}) {
    const std::string line = to_json(r);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const StepRow back = step_row(line, "x");
    EXPECT_EQ(to_json(back), line);
    EXPECT_EQ(back.loss, r.loss) << "every bit";
    EXPECT_EQ(back.evaluated(), r.evaluated());
    EXPECT_EQ(back.utilisation(), 0.5);
    EXPECT_EQ(back.peak_bytes, r.peak_bytes);
  }
}

TEST(StepRow, SaysWhatLayersAddToTheLossWhereTheyDo) {
  StepRow r = row(7);
  EXPECT_EQ(to_json(r).find("auxiliary_loss"), std::string::npos);
  r.auxiliary_loss = 0.25;
  EXPECT_EQ(nlohmann::json::parse(to_json(r))["auxiliary_loss"], 0.25);
  EXPECT_EQ(step_row(to_json(r), "x").auxiliary_loss, 0.25);
}

TEST(StepRow, HasNoShareOfAPeakThatIsTooLowOrNotKnown) {
  StepRow r = row(7);
  EXPECT_EQ(nlohmann::json::parse(to_json(r))["utilisation"], 0.5);
  r.peak_flops = 0.9e9;
  EXPECT_TRUE(nlohmann::json::parse(to_json(r))["utilisation"].is_null());
  EXPECT_GT(step_row(to_json(r), "x").utilisation(), 1) << "it may become one of a higher peak";
  // A row of an earlier version.
  nlohmann::json old = nlohmann::json::parse(to_json(r));
  old.erase("peak_flops");
  old.erase("flops_per_second");
  old["utilisation"] = 1.26;
  EXPECT_FALSE(nlohmann::json::parse(to_json(step_row(old.dump(), "x"))).contains("utilisation"));
}

TEST(StepRow, SaysWhatALineLacks) {
  EXPECT_TRUE(error_says([] { step_row("{", "x"); }, {"x", "not JSON"}));
  EXPECT_TRUE(error_says([] { step_row("[]", "x"); }, {"x", "\"step\""}));
  EXPECT_TRUE(error_says([] { step_row("{\"step\":1}", "x"); }, {"x", "\"loss\""}));
}

TEST(RunLog, HandsEveryLineOverAtOnce) {
  const TemporaryFolder folder;
  RunLog log(folder.path());
  log.append(row(1));
  log.append(row(2));
  log.append(Note{2, "sample", "text \xff with \n anything"});
  EXPECT_EQ(read_file(folder.path("metrics.jsonl")),
            to_json(row(1)) + "\n" + to_json(row(2)) + "\n");
  const std::string notes = read_file(folder.path("notes.jsonl"));
  EXPECT_EQ(std::count(notes.begin(), notes.end(), '\n'), 1);
}

TEST(RunLog, GoesOnAfterACheckpoint) {
  const TemporaryFolder folder;
  {
    RunLog log(folder.path());
    for (int step = 1; step <= 5; ++step) log.append(row(step, step == 4 ? 1.5 : std::nan("")));
    log.append(Note{3, "sample", "three"});
    log.append(Note{5, "sample", "five"});
  }
  const std::string whole = read_file(folder.path("metrics.jsonl"));
  write_file(folder.path("metrics.jsonl"), whole + "{\"step\":6,\"lo");  // cut off by a crash
  {
    RunLog log(folder.path(), 4);
    ASSERT_EQ(log.rows().size(), 4u);
    EXPECT_EQ(log.rows()[3].validation_loss, 1.5);
    ASSERT_EQ(log.notes().size(), 1u);
    log.append(row(5));
  }
  EXPECT_EQ(RunLog(folder.path(), 100).rows().size(), 5u);
}

TEST(RunLock, BelongsToOneProcessAtATime) {
  const TemporaryFolder folder;
  {
    const RunLock lock(folder.path());
    const auto before = std::filesystem::last_write_time(folder.path("lock"));
    EXPECT_TRUE(error_says([&] { RunLock{folder.path()}; }, {folder.path(), "another process"}));
    EXPECT_EQ(std::filesystem::last_write_time(folder.path("lock")), before);
  }
  const RunLock next(folder.path());
  EXPECT_TRUE(
      error_says([&] { RunLock{folder.path("nowhere")}; }, {"nowhere", "cannot be written"}));
}

// The rest is taken up, and the file as it was stays.
TEST(RunLog, KeepsADamagedFileAsideAndGoesOn) {
  const TemporaryFolder folder;
  { RunLog log(folder.path()); }
  const std::string damaged = to_json(row(1)) + "\nnonsense\n" + to_json(row(2)) + "\n{}\n";
  for (const char* aside : {"metrics.jsonl.damaged", "metrics.jsonl.damaged.2"}) {
    write_file(folder.path("metrics.jsonl"), damaged);
    const RunLog log(folder.path(), 3);
    EXPECT_EQ(log.rows().size(), 2u);
    ASSERT_EQ(log.remarks().size(), 1u);
    for (const char* said :
         {"metrics.jsonl: line 2", "not JSON", "2 damaged lines are left out", aside})
      EXPECT_NE(log.remarks()[0].find(said), std::string::npos) << log.remarks()[0];
    EXPECT_EQ(read_file(folder.path(aside)), damaged);
    EXPECT_EQ(read_file(folder.path("metrics.jsonl")),
              to_json(row(1)) + "\n" + to_json(row(2)) + "\n");
  }
  EXPECT_TRUE(RunLog(folder.path(), 3).remarks().empty());
  write_file(folder.path("notes.jsonl"), std::string("\0\xff", 2) + "\n");
  EXPECT_EQ(RunLog(folder.path(), 3).remarks().size(), 1u);
}

TEST(RunLog, KeepsLaterLinesInAFolder) {
  const TemporaryFolder folder;
  const std::string later = folder.path("later");
  std::filesystem::create_directory(later);
  {
    RunLog log(folder.path());
    for (int step = 1; step <= 5; ++step) log.append(row(step));
    log.append(Note{5, "sample", "five"});
  }
  EXPECT_EQ(RunLog(folder.path(), 3, later).rows().size(), 3u);
  EXPECT_EQ(read_file(later + "/metrics.jsonl"), to_json(row(4)) + "\n" + to_json(row(5)) + "\n");
  EXPECT_NE(read_file(later + "/notes.jsonl").find("five"), std::string::npos);
}

// However long a run is: what is kept of it has a limit, and has its ends, spikes and evaluations;
// the sums are of all.
TEST(RunLog, IsThinnedInMemory) {
  const TemporaryFolder folder;
  constexpr int kSteps = 20'000;
  {
    RunLog log(folder.path());
    for (int step = 1; step <= kSteps; ++step) {
      StepRow r = row(step, step % 500 == 0 ? 2.0 : std::nan(""));
      r.loss = step == 8'001 ? std::nan("") : step == 13'001 ? 1e6 : 3;
      r.peak_bytes[0] = step == 7'003 ? 99 : 1;
      log.append(r);
      ASSERT_LE(log.rows().size(), RunLog::kMostRows);
    }
    for (int step = 1; step <= 5'000; ++step) {
      log.append(Note{step, step == 77 ? "event" : "sample", "text"});
      ASSERT_LE(log.notes().size(), RunLog::kMostNotes);
    }
  }
  const RunLog log(folder.path(), kSteps);
  EXPECT_LE(log.rows().size(), RunLog::kMostRows);
  EXPECT_EQ(log.totals().rows, kSteps);
  EXPECT_NEAR(log.totals().seconds, kSteps * 0.05, 1e-6);
  EXPECT_EQ(log.totals().peak_bytes[0], 99);
  std::set<std::int64_t> steps;
  for (const StepRow& r : log.rows()) steps.insert(r.step);
  for (const int step : {1, 8'001, 13'001, kSteps}) EXPECT_TRUE(steps.contains(step)) << step;
  for (int step = 500; step <= kSteps; step += 500) EXPECT_TRUE(steps.contains(step)) << step;
  EXPECT_LE(log.notes().size(), RunLog::kMostNotes);
  EXPECT_EQ(log.notes().front().step, 1);
  EXPECT_EQ(std::count_if(log.notes().begin(), log.notes().end(),
                          [](const Note& n) { return n.kind == "event"; }),
            1);
}

}  // namespace
}  // namespace aisc
