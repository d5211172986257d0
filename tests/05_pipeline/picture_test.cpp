// Pictures of schedules that are small enough to be drawn by hand.
#include "05_pipeline/picture.h"

#include <gtest/gtest.h>

#include "tests/05_pipeline/written.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using written::one_by_one;
using written::same;
using written::schedule;
using written::two_by_turns;

int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

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
  std::string list;
  for (int k = 0; k < 11; ++k) list += " F" + std::to_string(k) + " B" + std::to_string(k);
  const Simulation s = simulate(same(1, 11, list), {{.forward = 1, .backward = 2}});
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

TEST(PictureGiven, SvgHasEachActionInItsColour) {
  const std::string svg = picture_svg(by_turns());
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0U);
  EXPECT_NE(svg.find("written: 9 s; idle 50 % of the ideal time, 33.3 % of the total"),
            std::string::npos);
  EXPECT_NE(svg.find(".f{fill:#0072B2}.b{fill:#009E73}.w{fill:#7F7F7F}"), std::string::npos);
  EXPECT_EQ(times(svg, "class=\"f\""), 4 + 1) << "and one in the legend";
  EXPECT_EQ(times(svg, "class=\"b\""), 4 + 1);
  for (const char* kind : {"w", "u", "c"})
    EXPECT_EQ(times(svg, "class=\"" + std::string(kind) + "\""), 0) << "there is none: " << kind;
  // Rank 1's B0: from 2 to 4 of 9 seconds, 920 wide from 64 on.
  EXPECT_NE(svg.find("<rect class=\"b\" x=\"268.4\" y=\"74\" width=\"204.4\" height=\"22\">"
                     "<title>B0: 2 to 4 s</title></rect><text x=\"370.7\" y=\"89\">0</text>"),
            std::string::npos)
      << svg;
}

TEST(PictureGiven, SvgOfChunksWeightGradientsUpdatesAndMessages) {
  const std::string list = "F0.0 F0.1 B0.1 W0.1 B0.0 W0.0 U0.0 U0.1";
  const std::vector<ActionCosts> costs{
      {.forward = 1, .backward = 1, .weight_gradient = 1, .update = 1}};
  const Schedule s = schedule(1, {list, list}, down_and_up(2));
  const std::string svg = picture_svg(simulate(s, costs, {.latency_seconds = 1}));
  EXPECT_EQ(times(svg, "class=\"f\""), 2 + 1);
  EXPECT_EQ(times(svg, "class=\"f2\""), 2) << "chunk 1 is paler";
  EXPECT_EQ(times(svg, "paler"), 1);
  EXPECT_EQ(times(svg, "class=\"w\""), 2 + 1);
  EXPECT_EQ(times(svg, "class=\"u\""), 4 + 1);
  EXPECT_EQ(times(svg, "class=\"c\""), 4 + 1) << "two messages there, two back";
  EXPECT_NE(svg.find("<title>F0.0 to rank 1: 1 to 2 s</title>"), std::string::npos);
  EXPECT_EQ(times(picture_svg(simulate(s, costs)), "class=\"c\""), 0) << "messages take no time";
}

TEST(PictureGiven, SvgOfNothingAndOfANameThatIsMarkup) {
  Schedule s = one_by_one(2, 1);
  s.name = "a<b>&c";
  const std::string svg = picture_svg(simulate(s, {{}}));
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;c: 0 s"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace aisc
