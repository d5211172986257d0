// The open exercise of this module: eight layers keep, recompute or offload what they save, within
// 260 MB. What is offloaded is not, as in plan_of(), gone before the layer behind the next begins:
// each lane of the link carries one copy after another, for as long as they take, and forward waits
// only where there is no room. When a copy comes back, the answer says.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

#include "02_cpu_offload/saving_plan.h"
#include "common/core/error.h"
#include "common/core/flags/answer.h"

namespace aisc {
namespace {

// Milliseconds and MB; a backward takes two forwards.
struct OpenLayer {
  double forward, saved;
};
constexpr OpenLayer kLayers[] = {{2, 40}, {5, 90}, {2, 40}, {5, 90},
                                 {3, 80}, {6, 90}, {3, 80}, {6, 90}};
constexpr int kCount = 8;
constexpr double kInput = 10, kRoom = 260, kRate = 10;  // MB, MB, MB/ms each way

struct Choice {
  Saving saving = Saving::Keep;
  int back = 0;  // of Offload: the layer before whose backward the copy back is asked for
};

std::vector<Choice> read_choices(const std::string& path) {
  std::vector<Choice> choices;
  for (const auto& [where, words] : read_answer(path, kCount, "layer")) {
    const int layer = static_cast<int>(choices.size());
    const std::string& word = words[0];
    if ((word != "K" && word != "R" && word != "O") || words.size() != (word == "O" ? 2U : 1U))
      fail(fmt::format("{}: '{}', expected K, R, or O and a layer, as in: O 5", where,
                       fmt::join(words, " ")));
    Choice choice{word == "K" ? Saving::Keep : word == "R" ? Saving::Recompute : Saving::Offload};
    if (choice.saving == Saving::Offload) {
      choice.back = number_of(words[1], where, kCount, "a layer");
      if (choice.back < layer)
        fail(fmt::format("{}: layer {} is asked for before backward {}, expected {} to {}", where,
                         layer, choice.back, layer, kCount - 1));
    }
    choices.push_back(choice);
  }
  return choices;
}

// Follows the rank's own time, that at which each lane is free, and the MB that are there. By hand,
// "O 1", "K", and so on: layer 0's 40 MB leave from 2 ms on, when its forward ends, to 6 ms, while
// layer 1 computes to 7 ms. They are asked for before backward 1, take 4 ms, and its 10 hide them.
class Step {
 public:
  explicit Step(const std::vector<Choice>& choices) : choices_(choices) {}

  void run() {
    for (int i = 0; i < kCount; ++i) forward(i);
    fmt::print("forward ends at {:g} ms, ", now_);
    for (int i = kCount - 1; i >= 0; --i) backward(i);
    fmt::print(
        "backward at {:g} ms; at most {:g} MB; it waited {:g} ms for room, {:g} for copies\n", now_,
        most_, for_room_, for_copies_);
  }
  double seconds() const { return now_; }

 private:
  // Waits, if need be, until copies to the host have left room.
  void take(double bytes, const char* turn, int layer) {
    const auto leave = [&] {
      live_ -= leaving_.front().second;
      leaving_.pop_front();
    };
    while (!leaving_.empty() && leaving_.front().first <= now_) leave();
    while (live_ + bytes > kRoom) {
      if (leaving_.empty())
        fail(fmt::format("{} {}: {:g} MB are there and {:g} more are needed, expected {:g} at most",
                         turn, layer, live_, bytes, kRoom));
      for_room_ += leaving_.front().first - now_;
      now_ = leaving_.front().first;
      leave();
    }
    live_ += bytes;
    most_ = std::max(most_, live_);
  }
  void forward(int i) {
    const auto [seconds, saved] = kLayers[i];
    take(saved, "forward", i);
    now_ += seconds;
    if (of(i).saving == Saving::Recompute) live_ -= saved - kInput;
    if (of(i).saving != Saving::Offload) return;
    to_host_ = std::max(now_, to_host_) + saved / kRate;
    leaving_.emplace_back(to_host_, saved);
    home_[i] = to_host_;
  }
  void backward(int i) {
    for (int k = i; k >= 0; --k) {
      if (of(k).saving != Saving::Offload || of(k).back != i) continue;
      take(kLayers[k].saved, "before backward", i);
      to_device_ = std::max({now_, to_device_, home_[k]}) + kLayers[k].saved / kRate;
      here_[k] = to_device_;
    }
    const auto [seconds, saved] = kLayers[i];
    if (of(i).saving == Saving::Recompute) {
      take(saved - kInput, "backward", i);
      now_ += seconds;
    }
    if (of(i).saving == Saving::Offload && here_[i] > now_) {
      for_copies_ += here_[i] - now_;
      now_ = here_[i];
    }
    now_ += 2 * seconds;
    live_ -= saved;
  }
  const Choice& of(int i) const { return choices_[static_cast<std::size_t>(i)]; }

  const std::vector<Choice>& choices_;
  double now_ = 0, to_host_ = 0, to_device_ = 0;  // the rank's time; when each lane is free
  double live_ = 0, most_ = 0, for_room_ = 0, for_copies_ = 0;
  double home_[kCount] = {}, here_[kCount] = {};   // when copies have arrived
  std::deque<std::pair<double, double>> leaving_;  // {when, MB}, to the host
};

// When the last forward ends, no more than kRoom is there. The rest has been carried off since the
// first forward ended, or forward runs again for it; a ms more buys kRate MB of the one, or at best
// the MB of the layer whose forward saves most in a ms.
double least_ms() {
  double computing = 0, saved = 0, forward = 0, again = 0;
  for (const OpenLayer& layer : kLayers) {
    computing += 3 * layer.forward;
    forward += layer.forward;
    saved += layer.saved;
    again = std::max(again, (layer.saved - kInput) / layer.forward);
  }
  const double left = saved - kRoom - (forward - kLayers[0].forward) * kRate;
  return computing + std::max(0.0, left) / std::max(kRate, again);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::scoring_program(
      argc, argv, "Scores a choice for what eight layers save: the open exercise.",
      "a line for each layer from 0 on: K (keep), R (recompute) or O 5 (offload, and ask for it "
      "before backward 5)",
      [](const std::string& path) {
        const auto choices = aisc::read_choices(path);
        aisc::Step step(choices);
        step.run();
        aisc::print_score(aisc::least_ms(), step.seconds(), "choice", "ms");
      });
}
