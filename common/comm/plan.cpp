// How a plan is written down and printed. The plans themselves are in default_plans.cpp.
#include "common/comm/plan.h"

#include <fmt/format.h>

#include "common/core/range.h"

namespace aisc {
namespace {

using Kind = PlanAction::Kind;

std::string text_of(const Piece& piece) {
  constexpr const char* kNames[] = {"in", "out", "scratch"};
  return fmt::format("{}[{}, {})", kNames[static_cast<std::size_t>(piece.where)], piece.begin,
                     piece.begin + piece.count);
}

// One line of the table behind its step: "send       1  out[0, 2)".
std::string line_of(const PlanAction& action) {
  switch (action.kind) {
    case Kind::Send:
      if (action.from.count == 0) return fmt::format("signal {:>5}", action.peer);
      return fmt::format("send   {:>5}  {}", action.peer, text_of(action.from));
    case Kind::Recv:
      if (action.to.count == 0) return fmt::format("await  {:>5}", action.peer);
      return fmt::format("recv   {:>5}  {}", action.peer, text_of(action.to));
    case Kind::Copy:
      return fmt::format("copy          {} <- {}", text_of(action.to), text_of(action.from));
    case Kind::Reduce:
      break;
  }
  return fmt::format("reduce        {} <- {}", text_of(action.to), text_of(action.from));
}

}  // namespace

void Plan::send(int peer, Piece from) {
  if (from.count > 0) actions.push_back({.kind = Kind::Send, .peer = peer, .from = from});
}

void Plan::recv(int peer, Piece to) {
  if (to.count > 0) actions.push_back({.kind = Kind::Recv, .peer = peer, .to = to});
}

void Plan::signal(int peer) { actions.push_back({.kind = Kind::Send, .peer = peer}); }

void Plan::await(int peer) { actions.push_back({.kind = Kind::Recv, .peer = peer}); }

void Plan::copy(Piece to, Piece from) {
  if (to.count > 0) actions.push_back({.kind = Kind::Copy, .from = from, .to = to});
}

void Plan::reduce(Piece to, Piece from) {
  if (to.count > 0) actions.push_back({.kind = Kind::Reduce, .from = from, .to = to});
}

void Plan::end_step() {
  const std::size_t begin = step_ends.empty() ? 0 : step_ends.back();
  if (actions.size() > begin) step_ends.push_back(actions.size());
}

std::span<const PlanAction> Plan::step(std::size_t s) const {
  const std::size_t begin = s == 0 ? 0 : step_ends[s - 1];
  return std::span(actions).subspan(begin, step_ends[s] - begin);
}

std::string Plan::to_string() const {
  std::string text = fmt::format("{}: {} steps, scratch {}\n", name, steps(), scratch_count);
  if (steps() > 0) text += "step  action  peer  piece\n";
  for (std::size_t s = 0; s < steps(); ++s) {
    std::string number = fmt::format("{:>4}", s);
    for (const PlanAction& action : step(s)) {
      text += fmt::format("{:4}  {}\n", number, line_of(action));
      number.clear();
    }
  }
  return text;
}

Piece chunk_of(Piece::Where where, std::int64_t count, int i, int parts) {
  const Range share = share_of(count, i, parts);
  return {.where = where, .begin = share.begin, .count = share.count()};
}

}  // namespace aisc
