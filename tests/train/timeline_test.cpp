// The two pictures of a step on many ranks, worked out by hand.
#include "common/train/timeline.h"

#include <gtest/gtest.h>

#include "common/comm/launch.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TraceEvent event(const char* part, double begin, double end) {
  return {.name = std::string(part) + "!",
          .part = part,
          .begin_seconds = begin,
          .end_seconds = end,
          .lane = 0};
}

// Inner spans lie over outer ones wherever they stand in the list; parts that begin alike get
// letters of their own.
TEST(Timeline, DrawsARowForEachRank) {
  const TimelineRow rows[] = {
      {"rank 0", {event("product", 1, 3), event("layer", 0, 4), event("pause", 6, 8)}},
      {"rank 10", {event("product", 2, 10)}}};
  EXPECT_EQ(timeline_text(rows, 20),
            "rank 0  |llppppll....aaaa....|\n"
            "rank 10 |....pppppppppppppppp|\n"
            "         0               10 s\n"
            "  l layer  a pause  p product \n");
  EXPECT_EQ(timeline_text({}), "");
}

TEST(Timeline, IsAPictureOfItsOwn) {
  const TimelineRow rows[] = {{"rank <0>", {event("a & b", 0, 1), event("c", 0.5, 0.75)}}};
  const std::string svg = timeline_svg(rows, "one step");
  EXPECT_NE(svg.find("rank &lt;0&gt;"), std::string::npos);
  EXPECT_NE(svg.find("a &amp; b"), std::string::npos);
  EXPECT_LT(svg.find("<title>a &amp; b: "), svg.find("<title>c: ")) << "inner spans lie on top";
  // The span of 0.5 s to 0.75 s of 1 s: half of 810 from the left, a quarter of it wide.
  EXPECT_NE(svg.find("x=\"565.00\" y=\"52\" width=\"202.50\""), std::string::npos) << svg;
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

// In virtual time the spans are where the clock says, on the clock that all share.
TEST(Timeline, IsGatheredFromAllRanks) {
  launch(launch_options({.ranks = 3, .virtual_time = true}), [](Rank rank) {
    rank.trace.record(true);
    {
      rank.clock.advance(rank.world.rank());
      const auto span = rank.trace.span("work", "mine");
      rank.clock.advance(1);
    }
    rank.trace.record(false);
    const std::vector<TimelineRow> rows = gather_timeline(rank);
    if (rank.world.rank() > 0) {
      EXPECT_TRUE(rows.empty());
      return;
    }
    ASSERT_EQ(rows.size(), 3u);
    for (int r = 0; r < 3; ++r) {
      const TimelineRow& row = rows[static_cast<std::size_t>(r)];
      EXPECT_EQ(row.name, "rank " + std::to_string(r));
      ASSERT_EQ(row.events.size(), 1u);
      EXPECT_EQ(row.events[0].part, "work");
      EXPECT_EQ(row.events[0].name, "mine");
      EXPECT_EQ(row.events[0].begin_seconds, r);
      EXPECT_EQ(row.events[0].end_seconds, r + 1);
    }
  });
}

TEST(BytesTable, PutsTheFormulaBesideTheLedger) {
  CpuDevice device;
  const Tensor weights({256}, DType::F32, device, Purpose::Parameters);
  const Tensor activations({64}, DType::F32, device, Purpose::Activations);
  const PredictedBytes predicted[] = {{Purpose::Parameters, "4 N", 1024},
                                      {Purpose::Gradients, "4 N", 1024}};
  EXPECT_EQ(bytes_table(device.ledger(), predicted),
            "purpose        formula                         its bytes       ledger    ratio\n"
            "parameters     4 N                                 1 KiB        1 KiB    1.000\n"
            "gradients      4 N                                 1 KiB          0 B    0.000\n"
            "activations    -                                       -        256 B        -\n");
}

// On the lanes [1, 4) and [6, 8); the thread waits in [3, 4) and, inside of another span, in [7,
// 8), of which a part has a span of its own.
TEST(CommunicationTime, IsHiddenWhereNobodyWaits) {
  const std::vector<TraceEvent> events = {
      {"product", "product", 0, 3, 0},      {"all_reduce", "world", 1, 4, 1},
      {"sum", "communication", 3, 4, 0},    {"all_reduce", "world", 6, 7.5, 1},
      {"all_reduce", "world", 7, 8, 2},     {"signs", "communication", 7, 8, 0},
      {"bits", "communication", 7, 7.5, 0}, {"optimizer", "optimizer", 5, 9, 0}};
  const CommunicationTime time = communication_time(events);
  EXPECT_EQ(time.under_way, 5);
  EXPECT_EQ(time.exposed, 2);
  EXPECT_EQ(time.hidden(), 3);
  EXPECT_EQ(communication_time({}).hidden(), 0);
}

}  // namespace
}  // namespace aisc
