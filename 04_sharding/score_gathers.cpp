// The open exercise of this module: when units are gathered and let go, under a limit. A list of
// gather_schedule.h says which units are whole in a turn; here the order of gathers is free, too,
// and the sums of gradients go over the same network: one after the other, in the order of asking.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/core/error.h"
#include "common/core/flags/answer.h"

namespace aisc {
namespace {

// Milliseconds of a forward, MB of weights and as many of gradients; a backward takes two forwards.
struct OpenUnit {
  double forward, weights;
};
constexpr OpenUnit kUnits[] = {{2, 30}, {1, 20}, {3, 40}, {1, 10},
                               {4, 50}, {1, 20}, {3, 40}, {2, 30}};
constexpr int kCount = 8, kTurns = 2 * kCount;
constexpr double kRoom = 110, kRate = 12;  // MB that are whole at once, MB/ms

class Step {
 public:
  void turn(int turn, const AnswerLine& line) {
    for (const std::string& word : line.words) {
      if (word == "-" || word == "+" || (word[0] != '-' && word[0] != '+' && word != "."))
        fail(fmt::format("{}: '{}', expected -3 (free unit 3), +3 (gather it) or a point",
                         line.where, word));
      if (word == ".") continue;
      const int unit = number_of(word.substr(1), line.where, kCount, "a unit");
      if (here_[unit] == (word[0] == '+'))
        fail(fmt::format("{}: {}: unit {} is {}", line.where, word, unit,
                         here_[unit] ? "here" : "not here"));
      here_[unit] = !here_[unit];
      live_ += (here_[unit] ? 1 : -1) * kUnits[unit].weights;
      if (here_[unit]) arrived_[unit] = send(kUnits[unit].weights);
      if (live_ > kRoom)
        fail(fmt::format("{}: {}: {:g} MB are whole, expected {:g} at most", line.where, word,
                         live_, kRoom));
    }
    const bool forward = turn < kCount;
    const int unit = forward ? turn : kTurns - 1 - turn;
    if (!here_[unit])
      fail(fmt::format("{}: {} {} reads unit {}, which is not here", line.where,
                       forward ? "forward" : "backward", unit, unit));
    waited_ += std::max(0.0, arrived_[unit] - now_);
    now_ = std::max(now_, arrived_[unit]) + (forward ? 1 : 2) * kUnits[unit].forward;
    if (!forward) send(kUnits[unit].weights);
  }
  double end() const {
    fmt::print(
        "computing ends at {:g} ms, of which it waited {:g}; {:g} MB are sent until {:g} ms\n",
        now_, waited_, sent_, network_);
    return std::max(now_, network_);
  }

 private:
  double send(double bytes) {
    sent_ += bytes;
    return network_ = std::max(now_, network_) + bytes / kRate;
  }

  double now_ = 0, network_ = 0, live_ = 0, sent_ = 0, waited_ = 0;
  bool here_[kCount] = {};
  double arrived_[kCount] = {};
};

// The first gather and the last sum have nothing to compute beside them. And what is whole between
// forward and backward is kRoom at most: all the rest is gathered twice.
double least_ms() {
  double computing = 0, weights = 0;
  for (const OpenUnit& unit : kUnits) {
    computing += 3 * unit.forward;
    weights += unit.weights;
  }
  return std::max(computing + 2 * kUnits[0].weights / kRate,
                  (2 * weights - kRoom + weights) / kRate);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::scoring_program(
      argc, argv, "Scores when units are gathered and let go: the open exercise.",
      "a line for each turn, forward 0 to 7 and backward 7 to 0: -3 frees unit 3, +4 gathers unit "
      "4, in this order, before the turn computes; a point does nothing",
      [](const std::string& path) {
        aisc::Step step;
        int turn = 0;
        for (const aisc::AnswerLine& line : aisc::read_answer(path, aisc::kTurns, "turn"))
          step.turn(turn++, line);
        aisc::print_score(aisc::least_ms(), step.end(), "schedule", "ms");
      });
}
