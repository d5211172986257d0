// What a chat with a model is made of: turns that fit its context, and answers that end at a text.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aisc {

// Turns as tokens, so that the model sees again exactly what it has read and written.
class Conversation {
 public:
  // What is said fits `room` tokens, what the answer leaves of the context. Throws Error: room < 1.
  explicit Conversation(std::int64_t room);

  void add(std::vector<std::int32_t> turn);
  // Continues the newest turn; there must be one.
  void append(std::span<const std::int32_t> tokens);

  // All turns behind one another. The oldest are forgotten, for good, until the rest fits; of a
  // newest turn that alone is too long the end remains.
  std::vector<std::int32_t> prompt();
  bool has_forgotten() const { return forgotten_; }  // a turn, or the beginning of one

 private:
  std::int64_t room_, tokens_ = 0;
  std::deque<std::vector<std::int32_t>> turns_;
  bool forgotten_ = false;
};

// A text that comes in pieces, up to where another text, `stop`, begins in it.
class UntilStop {
 public:
  explicit UntilStop(std::string stop) : stop_(std::move(stop)) {}  // "": it never comes

  // What is certain by now: all but a last piece that `stop` may begin with. Nothing once stopped.
  std::string add(std::string_view bytes);
  bool stopped() const { return stopped_; }
  // The text has ended: the piece that was held back.
  std::string finish();

 private:
  std::string stop_, held_;
  bool stopped_ = false;
};

}  // namespace aisc
