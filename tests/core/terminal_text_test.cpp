// What reaches a terminal: whole characters, and nothing that commands it.
#include "common/core/flags/terminal_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aisc {
namespace {

using namespace std::string_literals;

// What comes out of one call, and what comes out byte by byte, which must be the same.
std::string shown(const std::string& bytes) {
  TerminalText whole, parts;
  std::string at_once = whole.add(bytes);
  at_once += whole.finish();
  std::string pieces;
  for (const char byte : bytes) pieces += parts.add({&byte, 1});
  pieces += parts.finish();
  EXPECT_EQ(at_once, pieces);
  return at_once;
}

const std::string kWrong = "\xEF\xBF\xBD";  // U+FFFD

TEST(TerminalText, PassesTextOn) {
  for (const std::string& text :
       {""s, "a b\n\tc~"s, "größer als ß"s, "日本語"s, "\U0001F600 ok"s,
        "\u00A0\u07FF\u0800\uFFFF"s, "\U00010000\U0010FFFF"s, "\uD7FF\uE000"s})
    EXPECT_EQ(shown(text), text);
}

TEST(TerminalText, WaitsForTheRestOfACharacter) {
  TerminalText text;
  EXPECT_EQ(text.add("a\xF0"), "a");
  EXPECT_EQ(text.add("\x9F\x98"), "");
  EXPECT_EQ(text.add("\x80!"), "\U0001F600!");
  EXPECT_EQ(text.add("\xE6\x97"), "");
  EXPECT_EQ(text.finish(), kWrong);
  EXPECT_EQ(text.finish(), "");
  EXPECT_EQ(text.add("\xA5x"), kWrong + "x");  // the character has ended
}

// The standard's own example (table 3-8): E1 80, E2, F0 91 92 and F1 BF are longest beginnings.
TEST(TerminalText, ReplacesEachLongestWrongBeginningOnce) {
  EXPECT_EQ(shown("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), kWrong + kWrong + kWrong + kWrong + "A");
  EXPECT_EQ(shown("\xC3("), kWrong + "(");
  EXPECT_EQ(shown("\x80\xBF"), kWrong + kWrong);
  EXPECT_EQ(shown("\xFF\xFE"), kWrong + kWrong);
  EXPECT_EQ(shown("\xC3\xC3\xA4"), kWrong + "ä");
}

TEST(TerminalText, RefusesWhatUtf8DoesNotSay) {
  const std::vector<std::string> wrong{
      "\xC0\x8A",          // a line feed in two bytes
      "\xC1\x9B",          // [ in two bytes
      "\xE0\x82\x9B",      // a C1 control in three bytes
      "\xF0\x80\x80\x9B",  // and in four
      "\xED\xA0\x80",      // a surrogate
      "\xF4\x90\x80\x80",  // beyond U+10FFFF
      "\xF5\x80\x80\x80",
  };
  for (const std::string& bytes : wrong) {
    std::string expected;
    for (std::size_t i = 0; i < bytes.size(); ++i) expected += kWrong;
    EXPECT_EQ(shown(bytes), expected);
  }
}

TEST(TerminalText, LeavesOutControls) {
  EXPECT_EQ(shown("a\x1B[2Jb"), "a[2Jb");
  EXPECT_EQ(shown("\x1B]0;title\x07x"), "]0;titlex");
  EXPECT_EQ(shown("a\r\b\x7F\0b"s), "ab");
  EXPECT_EQ(shown("\xC2\x9B"
                  "31m"),
            "31m");  // U+009B, which is ESC [
  for (int c = 0; c < 0x20; ++c) {
    const std::string byte(1, static_cast<char>(c));
    EXPECT_EQ(shown(byte), c == '\n' || c == '\t' ? byte : "");
  }
  for (int c = 0x80; c < 0xA0; ++c) EXPECT_EQ(shown({'\xC2', static_cast<char>(c)}), "");
}

TEST(ForTerminal, MakesAWholeTextFit) {
  EXPECT_EQ(for_terminal("bad: '\xFC\x1B[2J'\nnext \xC3"), "bad: '\uFFFD\\x1b[2J'\nnext \uFFFD");
  EXPECT_EQ(for_terminal("\xC2\x9B and \x7F"), "\\x9b and \\x7f");
  EXPECT_EQ(for_terminal(""), "");
}

// Nothing comes out that a strict reader would refuse or a terminal obey, whatever goes in: all
// pairs of bytes, each with some third.
TEST(TerminalText, LetsNoBareByteThrough) {
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string out =
          shown({static_cast<char>(a), static_cast<char>(b), static_cast<char>((a * 7 + b) & 255)});
      EXPECT_EQ(shown(out), out);
      for (const char c : out) ASSERT_TRUE(c < 0 || c >= 0x20 || c == '\n' || c == '\t');
    }
}

}  // namespace
}  // namespace aisc
