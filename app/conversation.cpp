#include "app/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {

Conversation::Conversation(std::int64_t room) : room_(room) {
  if (room < 1) fail(fmt::format("a conversation of {} tokens, expected 1 or more", room));
}

void Conversation::add(std::vector<std::int32_t> turn) {
  tokens_ += std::ssize(turn);
  turns_.push_back(std::move(turn));
}

void Conversation::append(std::span<const std::int32_t> tokens) {
  tokens_ += std::ssize(tokens);
  turns_.back().insert(turns_.back().end(), tokens.begin(), tokens.end());
}

std::vector<std::int32_t> Conversation::prompt() {
  while (tokens_ > room_) {
    forgotten_ = true;
    std::vector<std::int32_t>& oldest = turns_.front();
    const bool is_only = turns_.size() == 1;
    const std::int64_t less = is_only ? tokens_ - room_ : std::ssize(oldest);
    oldest.erase(oldest.begin(), oldest.begin() + less);
    tokens_ -= less;
    if (!is_only) turns_.pop_front();
  }
  std::vector<std::int32_t> all;
  for (const std::vector<std::int32_t>& turn : turns_)
    all.insert(all.end(), turn.begin(), turn.end());
  return all;
}

std::string UntilStop::add(std::string_view bytes) {
  if (stopped_) return "";
  held_ += bytes;
  std::size_t certain = held_.size();
  if (!stop_.empty()) {
    certain = held_.find(stop_);
    stopped_ = certain != std::string::npos;
    if (!stopped_) {
      // The longest end of what is here that `stop` begins with is not certain.
      std::size_t open = std::min(held_.size(), stop_.size() - 1);
      while (!held_.ends_with(std::string_view(stop_).substr(0, open))) --open;
      certain = held_.size() - open;
    }
  }
  std::string text = held_.substr(0, certain);
  held_.erase(0, certain);
  return text;
}

std::string UntilStop::finish() { return stopped_ ? "" : std::exchange(held_, ""); }

}  // namespace aisc
