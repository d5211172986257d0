// Pictures of schedules that are small enough to be drawn by hand.
#include "05_pipeline/picture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/05_pipeline/written.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using written::one_by_one;
using written::same;
using written::schedule;
using written::two_by_turns;

Simulation by_turns() { return simulate(two_by_turns(), {{.forward = 1, .backward = 2}}); }

TEST(PictureGiven, TextByHand) {
  EXPECT_EQ(picture_text(by_turns()),
            "rank 0 |F0F1....B0--..B1--|\n"
            "rank 1 |..F0B0--F1B1--....|\n"
            "9 s; idle 50 % of the ideal time, 33.3 % of the total\n");
}

// A column a second: the letter of what has no room for its name.
TEST(PictureGiven, TextWithLittleRoom) {
  EXPECT_EQ(picture_text(by_turns(), 17),
            "rank 0 |FF..B0.B1|\n"
            "rank 1 |.FB0FB1..|\n"
            "9 s; idle 50 % of the ideal time, 33.3 % of the total\n");
}

TEST(PictureGiven, TextOfChunksWeightGradientsAndUpdates) {
  const Simulation s =
      simulate(schedule(1, {"F0.0 F0.1 B0.1 W0.1 B0.0 W0.0 U0.0 U0.1"}, round_robin(1, 2)),
               {{.forward = 1, .backward = 2, .weight_gradient = 1, .update = 2}});
  EXPECT_EQ(picture_text(s),
            "rank 0 |F0.0F0.1B0.1----W0.1B0.0----W0.0U.0-----U.1-----|\n"
            "12 s; idle 0 % of the ideal time, 0 % of the total\n");
}

TEST(PictureGiven, NamesAreWholeOrOnlyALetter) {
  const Simulation s = simulate(one_by_one(1, 11), {{.forward = 1, .backward = 2}});
  EXPECT_EQ(picture_text(s, 66).substr(std::string("rank 0 |").size() + 36),
            "F6B6--F7B7--F8B8--F9B9--F-B10-|\n33 s; idle 0 % of the ideal time, 0 % of the "
            "total\n");
}

TEST(PictureGiven, TextIsNeverWiderThanItMay) {
  std::vector<ActionCosts> costs(3);
  for (std::size_t i = 0; i < 3; ++i) costs[i] = {.forward = 0.3 + 0.1 * double(i), .backward = 1};
  const Simulation s = simulate(same(3, 2, "F0 F1 B0 B1"), costs, {.latency_seconds = 0.01});
  for (const int columns : {1, 2, 10, 41, 100}) {
    const std::string text = picture_text(s, columns);
    EXPECT_LE(text.find('\n'), std::string("rank 0 ||").size() + static_cast<std::size_t>(columns));
  }
}

TEST(PictureGiven, NoText) {
  EXPECT_EQ(picture_text(simulate(one_by_one(2, 1), {{}})), "");
  EXPECT_TRUE(
      error_says([] { picture_text(by_turns(), 0); }, {"picture_text: 0 columns", "at least 1"}));
}

// A row a rank; what it sends is below it, where messages take time.
TEST(PictureGiven, RowsOfATimeline) {
  const std::string list = "F0.0 F0.1 B0.1 W0.1 B0.0 W0.0 U0.0 U0.1";
  const std::vector<ActionCosts> costs{
      {.forward = 1, .backward = 1, .weight_gradient = 1, .update = 1}};
  const Schedule s = schedule(1, {list, list}, down_and_up(2));
  const auto said = [](const TimelineRow& row) {
    std::string all = row.name + ":";
    for (const TraceEvent& e : row.events)
      all += fmt::format(" {} {} {:g}-{:g}", e.part, e.name, e.begin_seconds, e.end_seconds);
    return all;
  };
  const std::vector<TimelineRow> rows = timeline_of(simulate(s, costs, {.latency_seconds = 1}));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(said(rows[0]).substr(0, 31), "rank 0: forward F0.0 0-1 forwar") << said(rows[0]);
  EXPECT_EQ(said(rows[1]).substr(0, 48), "rank 0 sends: communication F0.0 to rank 1 1-2 c");
  EXPECT_EQ(rows[2].name, "rank 1");
  EXPECT_EQ(rows[0].events.size(), 8u);
  EXPECT_EQ(timeline_of(simulate(s, costs)).size(), 2u) << "messages take no time";
  EXPECT_TRUE(timeline_of(simulate(one_by_one(2, 1), {{}}))[0].events.empty());
}

}  // namespace
}  // namespace aisc
