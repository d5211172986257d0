// A student in stages hears its teacher as one rank does.
#include <gtest/gtest.h>

#include <utility>

#include "05_pipeline/pipelined.h"
#include "10_model_compression/teacher.h"
#include "common/ops/ops.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

// A model of the student's vocabulary whose opinions are strong.
MakeTeacher strong_teacher() {
  return [](const Rank& rank) {
    Teacher teacher(rank, {.layers = 3,
                           .heads = 2,
                           .width = 20,
                           .context = 12,
                           .vocabulary = 13,
                           .vocabulary_multiple = 5});
    const View values = teacher.parameters().values();
    teacher.parameters().initialize(7);
    ops::scale(values, values, 10);
    return teacher;
  };
}

TEST(TaughtPipelines, AreTheSerialRun) {
  TrainConfig one = odd_training(2, 0, 12, 1);
  one.pp = 1;
  const auto expected = run_layout({}, one, 3, distilled(one, strong_teacher()));
  EXPECT_FALSE(same_steps(run_layout({}, one, 3), expected)) << "the teacher is not heard";
  const TrainConfig config = odd_training(2, 0, 12, 3);
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    for (const Again again : {Again::Never, Again::OnArrival}) {
      if (again != Again::Never && schedule[0] == 'z') continue;
      for (const int ranks : {2, 4}) {
        StepParts parts = pipelined({.schedule = schedule, .again = again});
        const auto found = run_layout({.ranks = ranks}, config, 3,
                                      distilled(config, strong_teacher(), {}, std::move(parts)));
        EXPECT_TRUE(same_steps(expected, found)) << schedule << ", " << ranks << " ranks";
      }
    }
}

}  // namespace
}  // namespace aisc
