// What a run writes down is there again when it goes on, and what came after its checkpoint is not.
#include "app/run_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

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

TEST(RunLog, NamesTheLineThatIsDamaged) {
  const TemporaryFolder folder;
  { RunLog log(folder.path()); }
  write_file(folder.path("metrics.jsonl"),
             to_json(row(1)) + "\nnonsense\n" + to_json(row(2)) + "\n");
  EXPECT_TRUE(error_says([&] { RunLog(folder.path(), 3); }, {"metrics.jsonl: line 2", "not JSON"}));
}

}  // namespace
}  // namespace aisc
