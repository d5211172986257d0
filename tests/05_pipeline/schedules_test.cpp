// What all makers of schedules have in common: sizes that they refuse, and their names.
#include "05_pipeline/schedules.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "05_pipeline/more/bidirectional.h"
#include "05_pipeline/schedule_parts.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

struct Maker {
  std::string name;
  std::function<Schedule(int ranks, int micro_batches)> make;
};
std::vector<Maker> makers() {
  return {{"naive", naive},
          {"gpipe", gpipe},
          {"1f1b", one_f_one_b},
          {"interleaved", [](int p, int m) { return interleaved(p, 2, m); }},
          {"zb-h1", zb_h1},
          {"zb-h2", zb_h2},
          {"pipedream", pipedream},
          {"2bw", [](int p, int m) { return two_bw(p, m, 1); }},
          {"zb-v", zb_v},
          {"dualpipe", dual_pipe},
          {"dualpipe-v", dual_pipe_v}};
}

TEST(SchedulesGiven, RefuseNoRanksAndNoMicroBatches) {
  for (const Maker& maker : makers()) {
    EXPECT_EQ(message_of([&] { maker.make(0, 4); }), maker.name + ": 0 ranks, at least 1 expected");
    EXPECT_EQ(message_of([&] { maker.make(-2, 4); }),
              maker.name + ": -2 ranks, at least 1 expected");
    EXPECT_EQ(message_of([&] { maker.make(2, 0); }),
              maker.name + ": 0 micro-batches, at least 1 expected");
  }
}

TEST(SchedulesGiven, InterleavedRefusesWhatDoesNotDivideAndOneChunk) {
  EXPECT_EQ(message_of([] { interleaved(4, 2, 6); }),
            "interleaved: 6 micro-batches, a multiple of the 4 ranks expected");
  EXPECT_EQ(message_of([] { interleaved(4, 1, 8); }), "interleaved: 1 chunks, at least 2 expected");
}

TEST(SchedulesGiven, TwoBufferedWeightsNeedAsManyMicroBatchesAsRanks) {
  EXPECT_EQ(message_of([] { two_bw(3, 2, 4); }),
            "2bw: 2 micro-batches an update of 3 ranks, at least 3 expected");
  EXPECT_EQ(message_of([] { two_bw(3, 3, 0); }), "2bw: 0 updates, at least 1 expected");
}

TEST(SchedulesGiven, DualPipesRefuseOddNumbersAndFewMicroBatches) {
  EXPECT_EQ(message_of([] { dual_pipe(3, 8); }),
            "dualpipe: 3 ranks and 8 micro-batches, even numbers expected");
  EXPECT_EQ(message_of([] { dual_pipe(4, 9); }),
            "dualpipe: 4 ranks and 9 micro-batches, even numbers expected");
  EXPECT_EQ(message_of([] { dual_pipe(4, 6); }),
            "dualpipe: 6 micro-batches on 4 ranks, at least 8 expected");
  EXPECT_EQ(message_of([] { dual_pipe_v(4, 7); }),
            "dualpipe-v: 7 micro-batches on 4 ranks, at least 8 expected");
}

TEST(SchedulesGiven, AListOfTwoChunksCountsMicroBatchesPerKindAndChunk) {
  TwoChunkList list;
  list.forward(0);
  list.forward(1);
  list.forward(0);
  list.backward(1);
  list.whole_backward(0);
  EXPECT_EQ(list.count(ActionKind::Forward, 0), 2);
  EXPECT_EQ(list.count(ActionKind::WeightGradient, 1), 0);
  std::string text;
  for (const Action& a : list.actions()) text += to_string(a, 2) + " ";
  EXPECT_EQ(text, "F0.0 F0.1 F1.0 B0.1 B0.0 W0.0 ");
}

}  // namespace
}  // namespace aisc
