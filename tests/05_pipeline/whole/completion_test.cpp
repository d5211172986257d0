// When a layer's gradients are whole, for hooks that send them: after the last one in the list,
// which need not be that of the last micro-batch.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/schedules.h"
#include "05_pipeline/timed_run.h"
#include "tests/05_pipeline/written.h"

namespace aisc {
namespace {

using written::same;
using written::schedule;

// Layers that were complete, and when.
using Completions = std::vector<std::pair<std::size_t, double>>;

class Recorder final : public LayerHook {
 public:
  explicit Recorder(Clock& clock) : clock_(clock) {}
  void complete(std::size_t layer) override { found.emplace_back(layer, clock_.now()); }

  Completions found;

 private:
  Clock& clock_;
};

// Of each rank, in a run where each forward, input and weight gradient takes a second.
std::vector<Completions> completions_of(const Schedule& s) {
  std::vector<std::unique_ptr<Recorder>> recorders(index(s.ranks()));
  timed::run(s, {.hook = [&](const Rank& rank) {
               auto& own = recorders[index(rank.world.rank())];
               own = std::make_unique<Recorder>(rank.clock);
               return own.get();
             }});
  std::vector<Completions> all;
  for (const auto& recorder : recorders) all.push_back(recorder->found);
  return all;
}

// The ends of these actions of each rank, one a layer: chunk c is layer c.
std::vector<Completions> ends_of(const Schedule& s, const std::string& last) {
  const std::vector<Action> actions = written::list(last);
  std::vector<Completions> all;
  for (const RankTimes& rank : simulate(s, {{1, 1, 1, 0}}).ranks) {
    all.emplace_back();
    for (const TimedAction& timed : rank.actions)
      for (const Action& a : actions)
        if (timed.action == a) all.back().emplace_back(index(a.chunk), timed.end_seconds);
  }
  return all;
}

// As in the figure of GPipe's paper.
TEST(PipelineCompletion, ComesOnceAfterTheLastBackwardInAnyOrder) {
  for (const std::string update : {"", " U3"}) {
    const Schedule s = same(2, 4, "F0 F1 F2 F3 B3 B2 B1 B0" + update);
    EXPECT_EQ(completions_of(s), (std::vector<Completions>{{{0, 15}}, {{0, 13}}})) << update;
  }
  EXPECT_EQ(completions_of(gpipe(2, 4)), ends_of(gpipe(2, 4), "B3"));
}

TEST(PipelineCompletion, ComesAfterTheLastWeightGradient) {
  const Schedule s = same(2, 2, "F0 F1 B0 B1 W1 W0 U1");
  EXPECT_EQ(completions_of(s), (std::vector<Completions>{{{0, 8}}, {{0, 7}}}));
  EXPECT_EQ(completions_of(zb_h2(3, 5)), ends_of(zb_h2(3, 5), "W4"));
}

TEST(PipelineCompletion, ComesForEachChunk) {
  const std::string list = "F0.0 F1.0 F0.1 F1.1 B1.1 B0.1 B1.0 B0.0";
  for (const std::string update : {"", " U1.0 U1.1"}) {
    const Schedule s = schedule(2, {list + update, list + update}, round_robin(2, 2));
    EXPECT_EQ(completions_of(s), ends_of(s, "B0.1 B0.0")) << update;
  }
  EXPECT_EQ(completions_of(zb_v(2, 4)), ends_of(zb_v(2, 4), "W3.0 W3.1"));
}

TEST(PipelineCompletion, ComesBeforeEachUpdate) {
  const Schedule s = same(2, 4, "F0 F1 B1 B0 U1 F2 F3 B3 B2 U3");
  EXPECT_EQ(completions_of(s), ends_of(s, "B0 B2"));
  EXPECT_EQ(completions_of(pipedream(3, 4)), ends_of(pipedream(3, 4), "B0 B1 B2 B3"));
  EXPECT_EQ(completions_of(two_bw(2, 2, 2)), ends_of(two_bw(2, 2, 2), "B1 B3"));
}

}  // namespace
}  // namespace aisc
