// Who waits for whom, and in vain.
#include <algorithm>

#include "common/comm/mpi/operation.h"
#include "common/comm/mpi/watchdog.h"

namespace aisc::mpi {
namespace {

using namespace std::chrono_literals;

constexpr auto kGlance = 100ms;        // at ranks that have returned
constexpr auto kReturnedTime = 300ms;  // after which nothing more comes of a rank that has returned
constexpr auto kAnswerTime = 1s;       // for a question

}  // namespace

void Watchdog::begin_wait(std::span<Operation* const> what) {
  const Operation& first = *what.front();
  session_.board().mine().waits_in.set(first.call, first.sequence, first.members().name);
  waits_for_ = what;
  wait_begin_ = std::chrono::steady_clock::now();
}

void Watchdog::end_wait() {
  waits_for_ = {};
  session_.board().mine().waits_in.clear();
}

Time Watchdog::next_judgement() const {
  return std::min<Time>(std::chrono::steady_clock::now() + kGlance, wait_begin_ + timeout_);
}

// What the others answer may change what there was to see.
void Watchdog::judge_wait(const std::function<bool()>& is_over) {
  const Time now = std::chrono::steady_clock::now();
  const bool is_late = now >= wait_begin_ + timeout_;
  const auto is_in_vain = [&] { return is_late || waits_for_finished_rank(now); };
  if (!is_in_vain()) return;
  ask_all();
  if (is_over() || !is_in_vain()) return;
  const double waited = std::chrono::duration<double>(now - wait_begin_).count();
  fail_inside(diagnose(is_late ? waited : 0));
}

std::vector<int> Watchdog::missing() const {
  std::vector<int> ranks;
  for (const Operation* what : waits_for_)
    if (!what->over()) {
      const std::vector<int> more = engine_.missing_of(*what);
      ranks.insert(ranks.end(), more.begin(), more.end());
    }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

State Watchdog::own_state() const {
  const Slot& slot = session_.board().mine();
  State state{.finished = slot.finished, .last_call = slot.last_call, .waits_in = slot.waits_in};
  for (const int rank : missing()) {
    if (state.missing_count == State::kMostMissing) break;
    state.missing[state.missing_count++] = rank;
  }
  return state;
}

bool Watchdog::waits_for_finished_rank(Time now) const {
  const std::vector<int> ranks = missing();
  return std::any_of(ranks.begin(), ranks.end(), [&](int r) {
    const auto& finished = peer(r).finished;
    return finished && now - *finished > kReturnedTime;
  });
}

// The ranks by their answers.
class Watchdog::Observer final : public RankObserver {
 public:
  explicit Observer(const Watchdog& watchdog) : watchdog_(watchdog) {}

  int size() const override { return watchdog_.session_.size(); }
  RankStatus status(int rank) const override {
    const Peer& peer = watchdog_.peer(rank);
    if (peer.state)
      return {true, peer.state->finished, peer.state->last_call.get(), peer.state->waits_in.get()};
    // Who does not answer may have left something on the board.
    RankStatus status{.answers = false};
    if (const Slot* slot = watchdog_.session_.board().slot_of(rank))
      status.last_call = slot->last_call.get();
    return status;
  }
  std::vector<int> missing(int rank) const override {
    const Peer& peer = watchdog_.peer(rank);
    if (!peer.state) return {};
    return {peer.state->missing, peer.state->missing + peer.state->missing_count};
  }

 private:
  const Watchdog& watchdog_;
};

void Watchdog::ask_all() {
  for (Peer& peer : peers_) peer.state.reset();
  me().state = own_state();
  send_to_all({.kind = Control::Kind::Ask});
  const auto answered = [&] { return failed_ || all([](const Peer& p) { return !!p.state; }); };
  engine_.wait_until(answered, std::chrono::steady_clock::now() + kAnswerTime);
  me().state = own_state();
}

std::string Watchdog::diagnose(double waited_seconds) const {
  return aisc::diagnose(Observer(*this), session_.rank(), waited_seconds);
}

}  // namespace aisc::mpi
