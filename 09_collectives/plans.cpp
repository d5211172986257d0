// Plans as they run, for the page that steps through them (`./aisc play`). Each plan is run by
// threads, cut after 0, 1, 2, ... rounds, and what the ranks hold then is written down.
//
// A round: all messages whose two sides are both ready go at once; a rank whose step has no more to
// wait for copies and adds, and begins its next step. Where all ranks have equally many steps and
// nobody waits, a round is a step. The JSON, {"plans": [plan, ...]}, with plan:
//
//   {"collective": "all_reduce", "algorithm": "ring", "ranks": 3, "elements": 3, "problem": "",
//    "rounds": [{"messages": [{"from": 0, "to": 1, "source": ["out", 0, 1],
//                              "target": ["scratch", 0, 1], "values": "a0"}],
//                "work": [{"rank": 1, "kind": "reduce", "to": ["out", 0, 1],
//                          "from": ["scratch", 0, 1]}],
//                "sent": {"messages": 3, "elements": 3},
//                "after": [{"in": "", "out": "a0 b02 c0", "scratch": "c2"}, ...]}]}
//
// Round 0 is before any message. A piece is [buffer, first element, elements]; "sent" counts from
// the beginning; "after" has an object a rank. The contents of an element say whose contributions
// are in it: a02 is the sum of element a of ranks 0 and 2, a0-7 that of all from 0 to 7, a00 has
// one twice; ? is what nobody has written yet. "problem" says why a plan does not come to its end.
#include <fmt/format.h>

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "09_collectives/named.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;
using Kind = PlanAction::Kind;
using Where = Piece::Where;

constexpr int kFewest = 2, kMost = 8, kLetters = 26, kNever = 1 << 30;
constexpr const char* kBuffers[] = {"in", "out", "scratch"};

struct Flags {
  std::string collective, algorithm, json;
  int ranks = 0, elements = 0;
};

std::size_t at(int i) { return static_cast<std::size_t>(i); }
bool is_message(const PlanAction& a) { return a.kind == Kind::Send || a.kind == Kind::Recv; }

// What an algorithm is told here, so that there is something to see.
std::string told(std::string_view name, int ranks) {
  if (name == "chain" || name == "double_tree") return std::string(name) + "/segments=2";
  if (name == "two_level") return ranks % 2 == 0 ? "two_level/ranks_per_node=2" : "";
  return std::string(name);
}

// One call by all ranks: its plans, and in which round what happens.
class Played {
 public:
  Played(CommOp op, const std::string& name, int ranks, int elements) : ranks_(ranks) {
    const bool whole = op == CommOp::AllReduce || op == CommOp::Reduce || op == CommOp::Broadcast;
    call_.call = {.op = op,
                  .count = elements > 0 ? elements
                           : whole      ? ranks
                                        : 1,
                  .dtype = DType::F32,
                  .peer = rooted(op) ? 0 : -1};
    if (op == CommOp::Barrier) call_.call.count = 0;
    if (op == CommOp::AllToAll)
      call_.send_counts = call_.recv_counts = std::vector(at(ranks), call_.call.count);
    const PlanMaker maker = plan_named(op, name);
    for (int r = 0; r < ranks; ++r) {
      plans_.push_back(maker(call_, r, ranks));
      rounds_of_.emplace_back(plans_.back().actions.size(), kNever);
      scratch_ = std::max(scratch_, plans_.back().scratch_count);
    }
    if (inputs() > kLetters)
      fail(fmt::format("{} elements, expected at most {}", inputs(), kLetters));
    for (int r = 0; r < ranks; ++r) check_pieces(r);
    if (problem_.empty()) find_rounds();
    run();
  }

  Json json(const std::string& name) const {
    Json rounds = Json::array();
    std::int64_t messages = 0, elements = 0;
    for (int k = 0; k <= last_round_; ++k) {
      Json sent = Json::array(), work = Json::array(), after = Json::array();
      for (int r = 0; r < ranks_; ++r) {
        std::map<int, std::deque<Piece>> targets;  // of this rank's messages, by their receiver
        for (std::size_t i = 0; i < rounds_of_[at(r)].size(); ++i) {
          const PlanAction& a = plans_[at(r)].actions[i];
          if (rounds_of_[at(r)][i] != k) continue;
          if (!is_message(a))
            work.push_back({{"rank", r},
                            {"kind", a.kind == Kind::Copy ? "copy" : "reduce"},
                            {"to", piece(a.to)},
                            {"from", piece(a.from)}});
          if (a.kind != Kind::Send) continue;
          if (!targets.contains(a.peer)) targets[a.peer] = received(a.peer, r, k);
          sent.push_back({{"from", r},
                          {"to", a.peer},
                          {"source", piece(a.from)},
                          {"target", piece(targets[a.peer].front())},
                          {"values", text(k - 1, r, a.from)}});
          targets[a.peer].pop_front();
          ++messages;
          elements += a.from.count;
        }
        Json held;
        for (const Where where : {Where::In, Where::Out, Where::Scratch})
          held[kBuffers[static_cast<int>(where)]] =
              text(k, r, {.where = where, .begin = 0, .count = size_of(where, r)});
        after.push_back(held);
      }
      rounds.push_back({{"messages", sent},
                        {"work", work},
                        {"sent", {{"messages", messages}, {"elements", elements}}},
                        {"after", after}});
    }
    return {{"collective", name_of(call_.call.op)}, {"algorithm", name},   {"ranks", ranks_},
            {"elements", call_.call.count},         {"problem", problem_}, {"rounds", rounds}};
  }

 private:
  static bool rooted(CommOp op) {
    return op == CommOp::Broadcast || op == CommOp::Reduce || op == CommOp::Gather ||
           op == CommOp::Scatter;
  }
  bool in_place() const {
    return call_.call.op == CommOp::AllReduce || call_.call.op == CommOp::Broadcast;
  }
  std::int64_t inputs() const {  // elements of a rank's input
    const CommOp op = call_.call.op;
    const bool takes_all =
        op == CommOp::ReduceScatter || op == CommOp::Scatter || op == CommOp::AllToAll;
    return call_.call.count * (takes_all ? ranks_ : 1);
  }
  std::int64_t outputs() const {
    const CommOp op = call_.call.op;
    const bool gives_all =
        op == CommOp::AllGather || op == CommOp::Gather || op == CommOp::AllToAll;
    return call_.call.count * (gives_all ? ranks_ : 1);
  }
  std::int64_t size_of(Where where, int r) const {
    if (where == Where::Scratch) return plans_[at(r)].scratch_count;
    if (where == Where::In) return in_place() || !call_.uses_in(r) ? 0 : inputs();
    return call_.uses_out(r) ? outputs() : 0;
  }

  static Json piece(const Piece& p) {
    return {kBuffers[static_cast<int>(p.where)], p.begin, p.count};
  }
  std::deque<Piece> received(int r, int from, int round) const {
    std::deque<Piece> pieces;
    for (std::size_t i = 0; i < rounds_of_[at(r)].size(); ++i) {
      const PlanAction& a = plans_[at(r)].actions[i];
      if (a.kind == Kind::Recv && a.peer == from && rounds_of_[at(r)][i] == round)
        pieces.push_back(a.to);
    }
    return pieces;
  }

  void check_pieces(int r) {
    const Plan& plan = plans_[at(r)];
    const std::size_t ended = plan.step_ends.empty() ? 0 : plan.step_ends.back();
    if (plan.actions.size() > ended)
      problem_ = fmt::format("rank {}: {} never run, after the last end_step()", r,
                             plan.actions.size() - ended == 1
                                 ? "1 action is"
                                 : fmt::format("{} actions are", plan.actions.size() - ended));
    for (const PlanAction& a : plans_[at(r)].actions)
      for (const Piece& p : {a.from, a.to}) {
        const std::int64_t size =
            size_of(in_place() && p.where == Where::In ? Where::Out : p.where, r);
        if (p.count > 0 && (p.begin < 0 || p.begin + p.count > size))
          problem_ = fmt::format("rank {}: elements [{}, {}) of {}, which has {}", r, p.begin,
                                 p.begin + p.count, kBuffers[static_cast<int>(p.where)], size);
        if (is_message(a) && (a.peer < 0 || a.peer >= ranks_))
          problem_ = fmt::format("rank {}: its peer {} is no rank", r, a.peer);
      }
  }

  // Ends the steps of rank r that wait for nothing more, in round k. Messages of the step that then
  // is under way are put into the queues of their pairs, from where the next round takes them.
  void go_on(int r, int k) {
    const Plan& plan = plans_[at(r)];
    while (open_[at(r)] == 0 && step_[at(r)] < plan.steps()) {
      const std::size_t s = step_[at(r)]++, begin = s == 0 ? 0 : plan.step_ends[s - 1];
      for (std::size_t i = begin; i < plan.step_ends[s]; ++i)
        if (!is_message(plan.actions[i])) rounds_of_[at(r)][i] = k;
      begin_step(r);
    }
  }
  void begin_step(int r) {
    const Plan& plan = plans_[at(r)];
    const std::size_t s = step_[at(r)];
    if (s == plan.steps()) return;
    for (std::size_t i = s == 0 ? 0 : plan.step_ends[s - 1]; i < plan.step_ends[s]; ++i) {
      const PlanAction& a = plan.actions[i];
      if (a.kind == Kind::Send) sends_[{r, a.peer}].push_back(i);
      if (a.kind == Kind::Recv) receives_[{a.peer, r}].push_back(i);
      open_[at(r)] += is_message(a) ? 1 : 0;
    }
  }
  void find_rounds() {
    open_.assign(at(ranks_), 0);
    step_.assign(at(ranks_), 0);
    for (int r = 0; r < ranks_; ++r) begin_step(r);
    for (int r = 0; r < ranks_; ++r) go_on(r, 0);
    for (bool moved = true; moved && problem_.empty();) {
      moved = false;
      for (auto& [pair, sends] : sends_) {
        auto& receives = receives_[pair];
        for (; !sends.empty() && !receives.empty(); sends.pop_front(), receives.pop_front()) {
          const auto [from, to] = pair;
          const std::int64_t sent = plans_[at(from)].actions[sends.front()].from.count,
                             expected = plans_[at(to)].actions[receives.front()].to.count;
          if (sent != expected)
            problem_ = fmt::format("rank {} sends {} elements to rank {}, which expects {}", from,
                                   sent, to, expected);
          if (!problem_.empty()) return;
          last_round_ += moved ? 0 : 1;
          moved = true;
          rounds_of_[at(from)][sends.front()] = rounds_of_[at(to)][receives.front()] = last_round_;
          --open_[at(from)];
          --open_[at(to)];
        }
      }
      for (int r = 0; r < ranks_; ++r) go_on(r, last_round_);
    }
    for (const auto& [pair, sends] : sends_)
      if (!sends.empty())
        problem_ += fmt::format("{}rank {} waits for ever until rank {} receives",
                                problem_.empty() ? "" : "; ", pair.first, pair.second);
    for (const auto& [pair, receives] : receives_)
      if (!receives.empty())
        problem_ += fmt::format("{}rank {} waits for ever for a message of rank {}",
                                problem_.empty() ? "" : "; ", pair.second, pair.first);
  }

  // All buffers of a rank lie one behind the other in the buffer of an all_reduce, so that all can
  // be looked at afterwards. An element is so many numbers, one for each contribution there may be
  // in it, and one for what nobody has written: whatever is added, it can be read what it is.
  std::int64_t width() const { return ranks_ * inputs() + 1; }
  Piece wide(const Piece& p) const {
    const bool out = p.where == Where::Out || (in_place() && p.where == Where::In);
    const std::int64_t base = p.where == Where::Scratch ? inputs() + outputs() : out ? inputs() : 0;
    return {.where = Where::Out, .begin = (base + p.begin) * width(), .count = p.count * width()};
  }
  Plan cut(int r, int round) const {
    Plan plan{.name = "cut"};
    for (std::size_t s = 0, i = 0; s < plans_[at(r)].steps(); ++s) {
      for (; i < plans_[at(r)].step_ends[s]; ++i) {
        PlanAction a = plans_[at(r)].actions[i];
        if (rounds_of_[at(r)][i] > round) continue;
        a.from = wide(a.from);
        a.to = wide(a.to);
        plan.actions.push_back(a);
      }
      plan.end_step();
    }
    return plan;
  }
  void run() {
    states_.assign(at(last_round_ + 1), std::vector<std::vector<float>>(at(ranks_)));
    std::vector<int> rounds(at(ranks_));
    LaunchOptions options{.ranks = ranks_, .backend = LaunchOptions::Backend::Threads};
    options.bind = false;
    options.plans[CommOp::AllReduce] = [&](const Collective&, int r, int) {
      return cut(r, rounds[at(r)]);
    };
    launch(options, [&](Rank rank) {
      const int r = rank.world.rank();
      const CommOp op = call_.call.op;
      const bool has_input = op == CommOp::Broadcast ? r == call_.call.peer : call_.uses_in(r);
      const std::int64_t begin = in_place() ? inputs() : 0, w = width();
      const std::int64_t count = (inputs() + outputs() + scratch_) * w;
      for (int& k = rounds[at(r)]; k <= last_round_; ++k) {
        const Tensor all = Tensor::zeros({count}, DType::F32, rank.device);
        float* values = all.data<float>();
        for (std::int64_t i = w - 1; i < count; i += w) values[i] = 1;
        for (std::int64_t i = 0; has_input && i < inputs(); ++i) {
          values[(begin + i) * w + r * inputs() + i] = 1;
          values[(begin + i) * w + w - 1] = 0;
        }
        rank.world.all_reduce(all).wait();  // comm: what the plan, cut after k rounds, sends
        states_[at(k)][at(r)].assign(values, values + count);
      }
    });
  }

  // What a piece of a rank holds after a round, as the head of this file says.
  std::string text(int round, int r, const Piece& p) const {
    if (p.count == 0) return "";
    const Piece lanes = wide(p);
    const float* values = states_[at(round)][at(r)].data() + lanes.begin;
    std::vector<std::string> elements;
    for (std::int64_t e = 0; e < p.count; ++e, values += width()) {
      std::string element = values[width() - 1] > 0 ? "?" : "";
      for (std::int64_t i = 0; i < inputs(); ++i) {
        std::string whose;
        for (int q = 0; q < ranks_; ++q)
          whose.append(static_cast<std::size_t>(values[q * inputs() + i]),
                       static_cast<char>('0' + q));
        if (whose.empty()) continue;
        const bool run = whose.size() > 3 &&
                         whose == std::string("01234567").substr(at(whose[0] - '0'), whose.size());
        if (run) whose = fmt::format("{}-{}", whose.front(), whose.back());
        element +=
            (element.empty() ? "" : "+") + std::string(1, static_cast<char>('a' + i)) + whose;
      }
      elements.push_back(element);
    }
    return fmt::format("{}", fmt::join(elements, " "));
  }

  int ranks_, last_round_ = 0;
  std::int64_t scratch_ = 0;
  Collective call_;
  std::vector<Plan> plans_;
  std::vector<std::vector<int>> rounds_of_;  // of each rank's actions
  std::string problem_;
  std::vector<int> open_;          // messages of a rank's step that have not met their other side
  std::vector<std::size_t> step_;  // that a rank is in
  std::map<std::pair<int, int>, std::deque<std::size_t>> sends_, receives_;  // by (from, to)
  std::vector<std::vector<std::vector<float>>> states_;                      // by round and rank
};

void run(const Flags& flags) {
  Json plans = Json::array();
  bool found = false;
  const std::string wanted = flags.algorithm.substr(0, flags.algorithm.find('/'));
  for (const Algorithm& algorithm : algorithms()) {
    if (!flags.collective.empty() && flags.collective != name_of(algorithm.op)) continue;
    if (!wanted.empty() && wanted != algorithm.name) continue;
    found = true;
    for (int ranks = flags.ranks > 0 ? flags.ranks : kFewest;
         ranks <= (flags.ranks > 0 ? flags.ranks : kMost); ++ranks) {
      const bool in_full = flags.algorithm.find('/') != std::string::npos;
      const std::string name = in_full ? flags.algorithm : told(algorithm.name, ranks);
      if (name.empty()) continue;
      const Json plan = Played(algorithm.op, name, ranks, flags.elements).json(name);
      const Json& last = plan["rounds"].back();
      fmt::print("{:<15}{:<28}{:>2} ranks{:>4} rounds{:>4} messages{:>5} elements  {}\n",
                 name_of(algorithm.op), name, ranks, plan["rounds"].size() - 1,
                 last["sent"]["messages"].get<int>(), last["sent"]["elements"].get<int>(),
                 plan["problem"].get<std::string>());
      plans.push_back(plan);
    }
  }
  if (!found) fail(fmt::format("no algorithm '{}' of '{}'", flags.algorithm, flags.collective));
  if (!flags.json.empty()) write_file(flags.json, Json{{"plans", plans}}.dump() + "\n");
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Flags flags;
  return aisc::program(
      argc, argv, "Runs plans round by round and says what every rank holds after each round.",
      [&](aisc::CommandLine& line) {
        line.text("--collective", flags.collective,
                  "all_reduce, broadcast, ...; all of them without");
        line.text("--algorithm", flags.algorithm, "ring, double_tree/segments=4, ...; all without");
        line.number("--ranks", flags.ranks, aisc::kFewest, aisc::kMost, "2 to 8, each, without");
        line.number("--elements", flags.elements, 1, aisc::kLetters,
                    "of the whole buffer, or of one part where there is one for each rank");
        line.text("--json", flags.json, "also write what ./aisc play shows to this file");
      },
      [&] { aisc::run(flags); });
}
