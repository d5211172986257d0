// Whose turn it is on shared cards and wires.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace aisc {

// Messages leave in the order of the times at which they were sent. Of those sent at one time, each
// rank's first message (in the order of issue) goes before any rank's second: were one rank to send
// all of its own first, they would hold wires that the others could have used meanwhile.
template <class Message>
class WireQueue {
 public:
  // `issue` and `part` order the messages that a rank sends at one time.
  void push(double sent_seconds, int rank, std::uint64_t issue, std::uint64_t part,
            Message message) {
    sent_.emplace(std::tuple(sent_seconds, rank, issue, part), std::move(message));
  }
  bool empty() const { return sent_.empty() && now_.empty(); }
  // When the message that goes next was sent. Not to be asked of an empty queue.
  double next_seconds() const {
    return now_.empty() ? std::get<0>(sent_.begin()->first) : now_seconds_;
  }
  // To be called when nothing will be sent any more that is earlier than next_seconds().
  Message pop() {
    if (now_.empty() && next_seconds() != now_seconds_) {
      now_seconds_ = next_seconds();
      turns_.clear();
    }
    while (!sent_.empty() && std::get<0>(sent_.begin()->first) <= now_seconds_) {
      const int rank = std::get<1>(sent_.begin()->first);
      now_.emplace(std::pair(turns_[rank]++, rank), std::move(sent_.begin()->second));
      sent_.erase(sent_.begin());
    }
    Message message = std::move(now_.begin()->second);
    now_.erase(now_.begin());
    return message;
  }
  void clear() {
    sent_.clear();
    now_.clear();
  }

 private:
  std::map<std::tuple<double, int, std::uint64_t, std::uint64_t>, Message> sent_;
  double now_seconds_ = -1;
  std::map<int, std::uint64_t> turns_;                    // taken at that time, by rank
  std::map<std::pair<std::uint64_t, int>, Message> now_;  // sent then, by turn and rank
};

}  // namespace aisc
