// A GPT trained through a pipeline: by any schedule, the serial run.
#include <gtest/gtest.h>

#include <string>

#include "04_sharding/sharded_units.h"
#include "05_pipeline/pipelined.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TrainConfig config_of(int pp, std::int64_t micro_batches, double dropout = 0.1) {
  TrainConfig c;
  c.model = odd_config(DType::F64, dropout);
  c.model.layers = 5;
  c.gradient_dtype = DType::F64;
  c.batch = 2 * micro_batches;
  c.micro_batches = micro_batches;
  c.pp = pp;
  c.steps = 10;
  c.warmup_steps = 2;
  c.learning_rate = 3e-3;
  c.clip = 0.05;
  return c;
}

std::vector<RunRecord> serial(TrainConfig config, int steps = 2) {
  config.pp = 1;
  return run_layout({.ranks = 1}, config, steps);
}

struct Case {
  std::string schedule;
  int pp, micro_batches, chunks = 1;
  Again again = Again::Never;
  std::int64_t keep_bytes = 0;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.schedule << " pp " << c.pp << " m " << c.micro_batches << " v " << c.chunks
             << " again " << static_cast<int>(c.again) << " keep " << c.keep_bytes;
}

class Synchronous : public ::testing::TestWithParam<Case> {};

TEST_P(Synchronous, LeavesWhatOneRankLeaves) {
  const Case& c = GetParam();
  const TrainConfig config = config_of(c.pp, c.micro_batches);
  const PipelineChoice choice{
      .schedule = c.schedule, .chunks = c.chunks, .again = c.again, .keep_bytes = c.keep_bytes};
  EXPECT_TRUE(
      same_steps(serial(config), run_layout({.ranks = c.pp}, config, 2, pipelined(choice))));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1", "zb-h2"})
    for (const int pp : {2, 3, 4})
      for (const int m : {1, 2, 3, 5, 9}) all.push_back({schedule, pp, m});
  for (const int m : {4, 8}) all.push_back({"interleaved", 2, m, 2});
  all.push_back({"zb-v", 2, 5, 2});
  for (const Again again : {Again::OnArrival, Again::Early})
    for (const std::int64_t keep : {0, 100'000, 1 << 30}) {
      all.push_back({"gpipe", 3, 5, 1, again, keep});
      all.push_back({"zb-h1", 2, 4, 1, again, keep});
    }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schedules, Synchronous, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace aisc
