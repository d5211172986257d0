// Runs the plans of all ranks on plain vectors, without a communicator: the oracle of plans. It is
// stricter than a backend needs to be: a step is over when all its messages have met their other
// side, what arrives may overlap nothing that is sent, and `in` must not be written to.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/plan.h"

namespace aisc {

// Elements [begin, begin + count) of a rank's memory. In place: in and out overlap.
struct Extent {
  std::int64_t begin = 0, count = 0;
};
template <class T>
struct RankMemory {
  std::vector<T> values;
  Extent in{}, out{};
};

// What one rank sends and adds.
struct Traffic {
  std::int64_t steps = 0, messages = 0, elements = 0, added = 0;
};
inline Traffic traffic_of(const Plan& plan) {
  Traffic traffic{.steps = static_cast<std::int64_t>(plan.steps())};
  for (const PlanAction& action : plan.actions) {
    if (action.kind == PlanAction::Kind::Reduce) traffic.added += action.to.count;
    if (action.kind != PlanAction::Kind::Send) continue;
    ++traffic.messages;
    traffic.elements += action.from.count;
  }
  return traffic;
}

template <class T>
class PlanOracle {
 public:
  // Scratch lies behind each rank's own memory, filled with `poison`.
  PlanOracle(const std::vector<Plan>& plans, std::vector<RankMemory<T>>& memory, T poison)
      : plans_(plans), memory_(memory), ranks_(plans.size()) {
    for (std::size_t r = 0; r < plans.size(); ++r) {
      ranks_[r].scratch = {.begin = static_cast<std::int64_t>(memory[r].values.size()),
                           .count = plans[r].scratch_count};
      memory[r].values.resize(
          memory[r].values.size() + static_cast<std::size_t>(plans[r].scratch_count), poison);
    }
  }

  // Reductions are sums. Returns what is wrong with the plans, or nothing.
  std::string run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const std::size_t run = plans_[r].step_ends.empty() ? 0 : plans_[r].step_ends.back();
      if (const std::size_t left = plans_[r].actions.size() - run; left > 0)
        return "rank " + std::to_string(r) + ": " + std::to_string(left) +
               (left == 1 ? " action after the last end_step() is"
                          : " actions after the last "
                            "end_step() are") +
               " never run";
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) begin_step(static_cast<int>(r));
    // A rank that ends a step may free others: they go on until none moves.
    for (bool moved = true; moved && error_.empty();) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        while (!over(r) && ranks_[r].open == 0 && error_.empty()) {
          end_step(static_cast<int>(r));
          moved = true;
        }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (!over(r))
        wrong(static_cast<int>(r), "waits for ever: it " + waiting(static_cast<int>(r), true));
    return error_;
  }

  // How many messages the slowest rank waits for, one after the other: steps with messages take a
  // round each, which begins when both sides are there.
  std::int64_t rounds() const {
    std::int64_t rounds = 0;
    for (const RankState& rank : ranks_) rounds = std::max(rounds, rank.end);
    return rounds;
  }

 private:
  using Kind = PlanAction::Kind;
  struct RankState {
    std::size_t step = 0;
    int open = 0;                     // messages of this step that have not met their other side
    std::int64_t begin = 0, end = 0;  // of this step, in rounds
    Extent scratch;
  };

  bool over(std::size_t r) const { return ranks_[r].step == plans_[r].steps(); }

  void wrong(int r, const std::string& what) {
    const RankState& rank = ranks_[static_cast<std::size_t>(r)];
    if (error_.empty())
      error_ = "rank " + std::to_string(r) + ", step " + std::to_string(rank.step) + ": " + what;
  }

  static std::string text_of(const Piece& piece) {  // "scratch[0, 2)"
    return buffer_of(piece) + "[" + std::to_string(piece.begin) + ", " +
           std::to_string(piece.begin + piece.count) + ")";
  }
  static std::string text_of(Kind kind, const Piece& piece) {  // "recv scratch[0, 2)"
    const char* const kinds[] = {"send ", "recv ", "copy ", "reduce "};
    return kinds[static_cast<int>(kind)] + text_of(piece);
  }
  static std::string buffer_of(const Piece& piece) {
    return piece.where == Piece::Where::In    ? "in"
           : piece.where == Piece::Where::Out ? "out"
                                              : "scratch";
  }

  // The first message of rank r that has not met its other side: "sends 4 elements to rank 2, which
  // in step 0 receives from rank 1".
  std::string waiting(int r, bool says_what_the_other_does) const {
    const auto i = static_cast<std::size_t>(r);
    for (const PlanAction& action : plans_[i].step(ranks_[i].step)) {
      const bool sends = action.kind == Kind::Send;
      if (!sends && action.kind != Kind::Recv) continue;
      const auto& messages = sends ? sends_ : recvs_;
      const auto open =
          messages.find(sends ? std::pair{r, action.peer} : std::pair{action.peer, r});
      if (open == messages.end() || open->second.empty()) continue;
      const std::string peer = "rank " + std::to_string(action.peer);
      if (!says_what_the_other_does) return (sends ? "sends to " : "receives from ") + peer;
      return (sends ? "sends " : "receives ") + std::to_string(open->second.front().count) +
             (sends ? " elements to " : " elements from ") + peer + ", which " + state(action.peer);
    }
    return "has begun nothing";
  }
  std::string state(int r) const {
    const auto i = static_cast<std::size_t>(r);
    if (r < 0 || i >= ranks_.size()) return "is no rank";
    if (over(i)) return "is done";
    return "in step " + std::to_string(ranks_[i].step) + " " + waiting(r, false);
  }

  Extent place_of(int r, Kind kind, const Piece& piece) {
    const auto i = static_cast<std::size_t>(r);
    const Extent area = piece.where == Piece::Where::In    ? memory_[i].in
                        : piece.where == Piece::Where::Out ? memory_[i].out
                                                           : ranks_[i].scratch;
    if (piece.begin < 0 || piece.begin + piece.count > area.count)
      wrong(r, "a piece lies outside: " + text_of(kind, piece) + ", " + buffer_of(piece) + " has " +
                   std::to_string(area.count));
    return {.begin = area.begin + piece.begin, .count = piece.count};
  }
  T* begin_of(int r, Kind kind, const Piece& piece) {
    return memory_[static_cast<std::size_t>(r)].values.data() + place_of(r, kind, piece).begin;
  }

  void begin_step(int r) {
    const auto i = static_cast<std::size_t>(r);
    if (over(i)) return;
    const auto step = plans_[i].step(ranks_[i].step);
    for (const PlanAction& action : step) {
      const bool sends = action.kind == Kind::Send, receives = action.kind == Kind::Recv;
      if (!sends && action.to.where == Piece::Where::In)
        wrong(r, "writes to in: " + text_of(action.kind, action.to));
      place_of(r, action.kind, action.from);
      const Extent to = place_of(r, action.kind, action.to);
      if (receives)  // into memory that no other message of the step uses
        for (const PlanAction& other : step) {
          if (&other == &action || (other.kind != Kind::Send && other.kind != Kind::Recv)) continue;
          const Piece& piece = other.kind == Kind::Send ? other.from : other.to;
          const Extent use = place_of(r, other.kind, piece);
          if (to.count > 0 && use.count > 0 && to.begin < use.begin + use.count &&
              use.begin < to.begin + to.count)
            wrong(r, "receives into memory of another message: " + text_of(Kind::Recv, action.to) +
                         " and " + text_of(other.kind, piece));
        }
      if (!error_.empty()) return;
      if (sends || receives) ++ranks_[i].open;
      if (sends) {
        sends_[{r, action.peer}].push_back(action.from);
        match(r, action.peer);
      }
      if (receives) {
        recvs_[{action.peer, r}].push_back(action.to);
        match(action.peer, r);
      }
    }
  }

  void match(int from, int to) {
    auto& sends = sends_[{from, to}];
    auto& recvs = recvs_[{from, to}];
    if (sends.empty() || recvs.empty()) return;
    const Piece send = sends.front(), recv = recvs.front();
    sends.pop_front();
    recvs.pop_front();
    if (send.count != recv.count) {
      wrong(to, "expects " + std::to_string(recv.count) + " elements, rank " +
                    std::to_string(from) + " sends " + std::to_string(send.count));
      return;
    }
    std::copy_n(begin_of(from, Kind::Send, send), send.count, begin_of(to, Kind::Recv, recv));
    RankState& sender = ranks_[static_cast<std::size_t>(from)];
    RankState& receiver = ranks_[static_cast<std::size_t>(to)];
    const std::int64_t end = std::max(sender.begin, receiver.begin) + 1;
    for (RankState* rank : {&sender, &receiver}) {
      rank->end = std::max(rank->end, end);
      --rank->open;
    }
  }

  void end_step(int r) {
    const auto i = static_cast<std::size_t>(r);
    for (const PlanAction& action : plans_[i].step(ranks_[i].step)) {
      if (action.kind != Kind::Copy && action.kind != Kind::Reduce) continue;
      if (action.from.count != action.to.count)
        return wrong(r, "copies or adds unequal counts: " + text_of(action.kind, action.to) +
                            " <- " + text_of(action.from));
      const T* from = begin_of(r, action.kind, action.from);
      T* to = begin_of(r, action.kind, action.to);
      for (std::int64_t e = 0; e < action.to.count; ++e)
        to[e] = action.kind == Kind::Copy ? from[e] : to[e] + from[e];
    }
    ++ranks_[i].step;
    ranks_[i].begin = ranks_[i].end;
    begin_step(r);
  }

  const std::vector<Plan>& plans_;
  std::vector<RankMemory<T>>& memory_;
  std::vector<RankState> ranks_;
  std::map<std::pair<int, int>, std::deque<Piece>> sends_, recvs_;  // by (from, to)
  std::string error_;
};

}  // namespace aisc
