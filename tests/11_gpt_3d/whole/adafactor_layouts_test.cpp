// Adafactor, whose sums are of whole rows and columns and whose steps are relative to a whole
// parameter, on ranks that have shards, stages and parts of layers: the serial run, and its
// checkpoints.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "11_gpt_3d/step_of.h"
#include "tests/app/dealt_weights.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

struct Case {
  int dp, pp, tp, zero = 0;
  std::string schedule = "1f1b";
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "dp " << c.dp << " pp " << c.pp << " tp " << c.tp << " zero " << c.zero << " "
             << c.schedule;
}

Options adafactor_options(const Case& c, DType dtype = DType::F64) {
  Options o;
  o.optimizer = "adafactor";
  o.ranks = c.dp * c.pp * c.tp;
  o.sharding.zero = c.zero;
  o.pipeline.schedule = c.schedule;
  o.pipeline.chunks = c.schedule == "interleaved" ? 2 : 1;
  TrainConfig& t = o.train;
  t.model = odd_config(dtype, 0.1);  // a vocabulary of 13: parts are padded
  t.model.layers = 4;
  t.model.heads = 12;
  t.model.width = 36;
  t.gradient_dtype = dtype;
  t.batch = 12;
  t.micro_batches = 2;
  t.pp = c.pp;
  t.tp = c.tp;
  t.steps = 10;
  t.warmup_steps = 2;
  t.learning_rate = 1e-2;
  t.min_learning_rate = 1e-2;
  t.weight_decay = 0.1;
  return o;
}

// The keys' biases change no attention: their gradients are rounding alone, about 1e-18, and so are
// their moves, which relative steps make 1e-11.
constexpr double kOfRounding = 1e-8;

std::vector<RunRecord> run(const Options& o, int steps) {
  std::vector<RunRecord> records = run_layout({.ranks = o.ranks}, o.train, steps, step_of(o));
  for (RunRecord& record : records)
    for (auto& [name, weights] : record.weights)
      if (name.ends_with("qkv.bias"))
        for (double& w : weights)
          if (std::abs(w) < kOfRounding) w = 0;
  return records;
}

class AdafactorLayouts : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, AdafactorLayouts,
                         ::testing::Values(Case{1, 1, 2}, Case{1, 1, 3}, Case{1, 1, 4},
                                           Case{1, 2, 1}, Case{1, 4, 1}, Case{1, 2, 2},
                                           Case{2, 1, 2}, Case{2, 1, 2, 1}, Case{2, 1, 2, 3},
                                           Case{2, 2, 1, 2}, Case{2, 2, 2, 1},
                                           Case{1, 2, 1, 0, "interleaved"},
                                           Case{1, 2, 2, 0, "zb-h1"}));

TEST_P(AdafactorLayouts, LeaveWhatOneRankLeaves) {
  const Case& c = GetParam();
  EXPECT_TRUE(same_steps(run(adafactor_options({1, 1, 1}), 4), run(adafactor_options(c), 4)));
}

// The training state as well: row and column sums of all stages, each once.
TEST_P(AdafactorLayouts, SaveAndReadTheSameFiles) {
  const Case& c = GetParam();
  const TemporaryFolder folder;
  const auto saved = [&](const Options& o, const std::string& from, const std::string& to) {
    const auto goes_on = [&](const Rank& rank, Trainer& trainer) {
      if (from.empty())
        take_steps(trainer, 2);
      else
        restore_run(rank, read_checkpoint(from), trainer);
      save(rank, folder.path(to), trainer);
    };
    on_ranks(
        o.ranks, o.train, [&] { return step_of(o); }, goes_on);
    return folder.path(to + "/step_000002");
  };
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const std::string serial =
        saved(adafactor_options({1, 1, 1}, dtype), "", std::string(name_of(dtype)) + "_serial");
    const std::string again =
        saved(adafactor_options(c, dtype), serial, std::string(name_of(dtype)) + "_again");
    for (const char* file : {"/model.safetensors", "/training_state.safetensors"})
      EXPECT_EQ(read_file(again + file), read_file(serial + file)) << name_of(dtype) << file;
  }
}

}  // namespace
}  // namespace aisc
