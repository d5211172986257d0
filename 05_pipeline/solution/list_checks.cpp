#include "05_pipeline/list_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "common/core/error.h"

namespace aisc {
namespace {

void check_list(const Schedule& s, int rank, std::vector<std::string>& out) {
  const ActionKind last = s.splits_backward ? ActionKind::WeightGradient : ActionKind::Backward;
  std::vector<bool> seen(4 * index(s.micro_batches) * index(s.chunks()));
  const auto slot = [&](ActionKind kind, int micro_batch, int chunk) {
    return (index(static_cast<int>(kind)) * index(s.chunks()) + index(chunk)) *
               index(s.micro_batches) +
           index(micro_batch);
  };
  const auto named = [&](const Action& a) { return to_string(a, s.chunks()); };
  const auto say = [&](const Action& a, const std::string& what) {
    out.push_back(fmt::format("rank {}: {} {}", rank, named(a), what));
  };
  std::vector<int> updated(index(s.chunks()), -1);  // the last micro-batch in an update
  // `seen` has the actions before this one. F, B and W of a micro-batch are numbered 0, 1, 2: each
  // needs the one before it.
  for (const Action& a : s.actions[index(rank)]) {
    if (a.micro_batch < 0 || a.micro_batch >= s.micro_batches || a.chunk < 0 ||
        a.chunk >= s.chunks()) {
      say(a, fmt::format("has micro-batch {} and chunk {}: there are {} and {}, from 0",
                         a.micro_batch, a.chunk, s.micro_batches, s.chunks()));
    } else if (a.kind == ActionKind::Update) {
      for (int k = 0; k <= a.micro_batch; ++k)
        if (!seen[slot(last, k, a.chunk)])
          say(a, fmt::format("after micro-batch {} comes before {}, whose gradient it needs",
                             a.micro_batch, named({last, k, a.chunk})));
      int& before = updated[index(a.chunk)];
      if (a.micro_batch <= before)
        say(a, fmt::format("after micro-batch {} has no new gradient: the update before it is "
                           "after micro-batch {}",
                           a.micro_batch, before));
      before = a.micro_batch;
    } else if (a.kind == ActionKind::WeightGradient && !s.splits_backward) {
      say(a, "is unknown: this schedule's backward has the weights' gradients");
    } else {
      const auto before = static_cast<ActionKind>(static_cast<int>(a.kind) - 1);
      if (seen[slot(a.kind, a.micro_batch, a.chunk)])
        say(a, "is there again, once is expected");
      else if (a.kind != ActionKind::Forward && !seen[slot(before, a.micro_batch, a.chunk)])
        say(a, fmt::format("comes before {}", named({before, a.micro_batch, a.chunk})));
      seen[slot(a.kind, a.micro_batch, a.chunk)] = true;
    }
  }
  for (int chunk = 0; chunk < s.chunks(); ++chunk)
    for (int k = 0; k < s.micro_batches; ++k)
      for (int kind = 0; kind <= static_cast<int>(last); ++kind)
        if (!seen[slot(static_cast<ActionKind>(kind), k, chunk)])
          say({static_cast<ActionKind>(kind), k, chunk}, "is missing");
}

}  // namespace

std::vector<std::string> list_problems(const Schedule& schedule) {
  try {
    stage_places(schedule);
  } catch (const Error& error) {
    return {error.what()};
  }
  if (schedule.micro_batches < 1)
    return {fmt::format("{} micro-batches, at least 1 expected", schedule.micro_batches)};
  if (schedule.copies < 1 || schedule.stages() % schedule.copies != 0)
    return {fmt::format("{} stages of {} copies of the model, a multiple expected",
                        schedule.stages(), schedule.copies)};
  if (schedule.actions.size() != schedule.stage_of.size())
    return {fmt::format("{} lists of actions, one for each of {} ranks expected",
                        schedule.actions.size(), schedule.ranks())};
  std::vector<std::string> found;
  for (int rank = 0; rank < schedule.ranks(); ++rank) check_list(schedule, rank, found);
  return found;
}

std::vector<std::string> message_problems(const Handovers& handovers) {
  struct Messages {
    std::vector<ActionAt> sent, received;  // each by the action that it is for
  };
  std::map<std::tuple<ActionKind, int, int>, Messages> pairs;  // direction, from, to
  for (int rank = 0; rank < handovers.schedule().ranks(); ++rank)
    for (std::size_t i = 0; i < handovers.schedule().actions[index(rank)].size(); ++i) {
      const ActionKind kind = handovers.action({rank, i}).kind;
      if (const auto to = handovers.target_of({rank, i}); to && to->rank != rank)
        pairs[{kind, rank, to->rank}].sent.push_back(*to);
      if (const auto from = handovers.source_of({rank, i}); from && from->rank != rank)
        pairs[{kind, from->rank, rank}].received.push_back({rank, i});
    }
  std::vector<std::string> found;
  // Messages between two ranks match first in first out: the k-th sent is the k-th received. The
  // first that differs is told; the others of the pair would only follow from it.
  for (const auto& [pair, messages] : pairs)
    for (std::size_t k = 0; k < messages.sent.size(); ++k)
      if (messages.sent[k] != messages.received[k]) {
        const auto& [kind, from, to] = pair;
        found.push_back(fmt::format(
            "{} from rank {} to rank {}, message {} (from 0): sent for {}, micro-batch {}, but "
            "received for {}, micro-batch {}",
            part_of_step(kind), from, to, k, handovers.name(messages.sent[k]),
            handovers.action(messages.sent[k]).micro_batch, handovers.name(messages.received[k]),
            handovers.action(messages.received[k]).micro_batch));
        break;
      }
  return found;
}

std::vector<int> most_in_flight(const Schedule& schedule, ActionKind until) {
  if (!schedule.splits_backward) until = ActionKind::Backward;
  std::vector<int> most;
  for (const std::vector<Action>& list : schedule.actions) {
    int now = 0;
    most.push_back(0);
    for (const Action& a : list) {
      now += a.kind == ActionKind::Forward ? 1 : a.kind == until ? -1 : 0;
      most.back() = std::max(most.back(), now);
    }
  }
  return most;
}

}  // namespace aisc
