// Turns within a context, and texts that end at another one.
#include "app/conversation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Turn = std::vector<std::int32_t>;

TEST(Conversation, IsAllTurnsWhileTheyFit) {
  Conversation talk(5);
  talk.add({1, 2});
  EXPECT_EQ(talk.prompt(), (Turn{1, 2}));
  talk.append(Turn{3});
  talk.add({4, 5});
  EXPECT_EQ(talk.prompt(), (Turn{1, 2, 3, 4, 5}));
  EXPECT_FALSE(talk.has_forgotten());
}

TEST(Conversation, ForgetsWholeTurnsFromTheOldestOn) {
  Conversation talk(5);
  talk.add({1, 2});
  talk.add({3, 4});
  talk.add({5, 6});
  EXPECT_EQ(talk.prompt(), (Turn{3, 4, 5, 6}));
  EXPECT_TRUE(talk.has_forgotten());
  talk.add({7});
  EXPECT_EQ(talk.prompt(), (Turn{3, 4, 5, 6, 7})) << "what is forgotten leaves room";
  talk.append(Turn{8, 9, 10, 11});
  EXPECT_EQ(talk.prompt(), (Turn{7, 8, 9, 10, 11}));
}

TEST(Conversation, KeepsTheEndOfATurnThatIsTooLong) {
  Conversation talk(3);
  talk.add({1});
  talk.add({2, 3, 4, 5});
  EXPECT_EQ(talk.prompt(), (Turn{3, 4, 5}));
  talk.add({6});
  EXPECT_EQ(talk.prompt(), (Turn{6}));
}

TEST(Conversation, HasRoom) {
  EXPECT_TRUE(error_says([] { Conversation{0}; }, {"0 tokens", "expected 1"}));
}

// `pieces` one by one, what comes of each between bars, and of the end.
std::string until(const std::string& stop, const std::vector<std::string>& pieces) {
  UntilStop text(stop);
  std::string all;
  for (const std::string& piece : pieces) all += text.add(piece) + "|";
  return all + text.finish() + (text.stopped() ? "!" : "");
}

TEST(UntilStop, HoldsBackWhatMayBeTheStop) {
  EXPECT_EQ(until("\n\n", {"one\n", "two", "\n", "\nthree", "four"}), "one|\ntwo||||!");
  EXPECT_EQ(until("abac", {"ab", "ab", "ac", "x"}), "|ab|||!");
  EXPECT_EQ(until("abac", {"ab", "a", "b", "a"}), "||ab||aba");
  EXPECT_EQ(until("stop", {"a stop b"}), "a |!");
}

TEST(UntilStop, WithoutAStopIsAllText) {
  EXPECT_EQ(until("", {"a", "", "b"}), "a||b|");
  EXPECT_EQ(until("x", {"a", "b"}), "a|b|");
}

}  // namespace
}  // namespace aisc
