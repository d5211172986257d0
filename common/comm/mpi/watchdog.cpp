// What the ranks of a launch tell each other beside their messages: who has come, failed, returned,
// and what they are doing.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/comm/mpi/engine.h"
#include "common/comm/mpi/operation.h"
#include "common/core/error.h"

namespace aisc::mpi {
namespace {

using namespace std::chrono_literals;

constexpr int kStuckExitStatus = 70;   // EX_SOFTWARE of sysexits.h
constexpr auto kGrace = 2s;            // for others to answer after a failure
constexpr auto kAnswerTime = 1s;       // for a question
constexpr auto kReturnedTime = 300ms;  // after which nothing more comes of a rank that has returned

}  // namespace

void Control::set_text(const std::string& its_text) {
  const std::size_t length = std::min(its_text.size(), sizeof text - 1);
  std::memcpy(text, its_text.data(), length);
  text[length] = '\0';
}

std::size_t Control::bytes() const { return offsetof(Control, text) + std::strlen(text) + 1; }

bool World::all(bool (*is)(const Peer&)) const {
  return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.gone || is(p); });
}

void World::receive_control() {
  MPI_Request* request = add({.kind = Flight::Kind::ControlRecv});
  require(MPI_Irecv(&control_in_, sizeof(Control), MPI_BYTE, MPI_ANY_SOURCE, control_tag_,
                    session_.comm(), request),
          "MPI_Irecv");
}

// A rank that cannot be told is found out otherwise.
void World::send(int to, std::shared_ptr<const Control> control) {
  if (to == rank() || peers_[static_cast<std::size_t>(to)].gone) return;
  MPI_Request* request =
      add({.kind = Flight::Kind::ControlSend, .is_send = true, .control = control});
  if (MPI_Isend(control.get(), static_cast<int>(control->bytes()), MPI_BYTE, to, control_tag_,
                session_.comm(), request) == MPI_SUCCESS)
    return;
  flights_.pop_back();
  requests_.pop_back();
}

void World::send_to_all(const Control& control) {
  const auto shared = std::make_shared<const Control>(control);
  for (int r = 0; r < size(); ++r) send(r, shared);
}

// Everybody reports to rank 0, which lets all go on.
void World::meet_all() {
  const Entry entry(*this);
  receive_control();
  const double seconds = options_.timeout_seconds;
  const Time deadline = std::chrono::steady_clock::now() + timeout_;
  Control control{.check_calls = options_.check_calls, .message_bytes = message_bytes_};
  if (rank() == 0) {
    peers_[0].hello = true;
    const auto all_came = [&] { return failed_ || all([](const Peer& p) { return p.hello; }); };
    if (!wait_until(all_came, deadline)) {
      std::string who;
      for (int r = 0; r < size(); ++r)
        if (!peers_[static_cast<std::size_t>(r)].hello)
          who += (who.empty() ? "" : ", ") + std::to_string(r);
      fail_inside(fmt::format("launch: rank {} has not come after {:.1f} s", who, seconds));
    }
    const auto since = [](Time from, Time to) {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
    };
    control.kind = Control::Kind::Go;
    control.origin_nanoseconds = since(Time(), origin_);
    control.elapsed_nanoseconds = since(origin_, std::chrono::steady_clock::now());
    if (!failed_) {
      has_go_ = true;
      send_to_all(control);
    }
  } else {
    send(0, std::make_shared<const Control>(control));
    // Rank 0 names who is missing; this is for the case that it is rank 0.
    if (!wait_until([&] { return failed_ || has_go_; }, deadline + kGrace))
      fail_inside(fmt::format("launch: rank 0 has not come after {:.1f} s", seconds));
  }
  if (!has_go_) {
    session_.broken = true;  // to finalize is to meet as well
    aisc::fail(failure_);
  }
  session_.running = this;
  handle_term();
  helper_ = std::thread([this] { help(); });
}

void World::handle(const Control& control, int from) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  switch (control.kind) {
    case Control::Kind::Hello:
      peer.hello = true;
      if (control.check_calls != options_.check_calls || control.message_bytes != message_bytes_)
        fail_inside(
            fmt::format("launch: rank {} has check_calls {}, message_bytes {}; rank 0 has "
                        "{}, {}",
                        from, control.check_calls, control.message_bytes, options_.check_calls,
                        message_bytes_));
      break;
    case Control::Kind::Go: {
      if (has_go_) break;
      // One node has one clock; between nodes the origins differ by the time of a message.
      const auto elapsed = std::chrono::nanoseconds(control.elapsed_nanoseconds);
      origin_ = session_.same_node(0) ? Time(std::chrono::nanoseconds(control.origin_nanoseconds))
                                      : std::chrono::steady_clock::now() - elapsed;
      has_go_ = true;
      break;
    }
    case Control::Kind::Failure:
      if (control.has_met) {
        has_go_ = true;  // whoever has got Go knows that it was sent to all
      } else if (!peer.finished) {
        peer.finished = std::chrono::steady_clock::now();  // it leaves without coming in
        peer.outcome = {Outcome::Kind::Failed, false, control.text};
      }
      fail_inside(control.text, control.gone, false);
      break;
    case Control::Kind::Quiet:
      peer.quiet = true;
      break;
    case Control::Kind::Finished:
      peer.finished = std::chrono::steady_clock::now();
      peer.outcome = {control.outcome, control.not_implemented, control.text};
      session_.next_id = std::max(session_.next_id, control.next_id);
      break;
    case Control::Kind::Ask: {
      const auto answer = std::make_shared<Control>();
      answer->kind = Control::Kind::State;
      answer->state = own_state();
      send(from, answer);
      break;
    }
    case Control::Kind::State:
      peer.state = control.state;
      break;
  }
}

void World::fail(const std::string& message) {
  const Entry entry(*this);
  fail_inside(message);
}

std::string World::failure() {
  const Entry entry(*this);
  return failure_;
}

// From here on nothing is posted, and receives are called back, so that the memory behind them may
// be freed. Those that a message has found already end by themselves.
void World::fail_inside(const std::string& message, int gone, bool tell) {
  if (gone >= 0) {
    peers_[static_cast<std::size_t>(gone)].gone = true;
    session_.broken = true;
  }
  if (failed_) return;
  failure_ = message;
  failed_ = true;
  quiet_deadline_ = std::chrono::steady_clock::now() + kGrace;
  if (tell) {
    Control control{.kind = Control::Kind::Failure, .has_met = has_go_, .gone = gone};
    control.set_text(message);
    send_to_all(control);
  }
  for (std::size_t i = 0; i < flights_.size(); ++i)
    if (!flights_[i].is_send && flights_[i].kind != Flight::Kind::ControlRecv)
      MPI_Cancel(&requests_[i]);
  tell_when_quiet();
}

void World::tell_when_quiet() {
  if (quiet_told_ || receives_ > 0) return;
  quiet_told_ = peers_[static_cast<std::size_t>(rank())].quiet = true;
  send_to_all({.kind = Control::Kind::Quiet});
}

// A message that nobody will receive touches nothing: when no rank has a receive open, sends are as
// good as over.
void World::wait_for_quiet(const std::shared_ptr<Group>& group) {
  std::deque<std::shared_ptr<Operation>> dropped;  // after the lock: the last may hold the group
  const Entry entry(*this);
  wait_until([&] { return all([](const Peer& p) { return p.quiet; }); }, quiet_deadline_);
  group->drop_operations(dropped);
}

void World::note_gone(int gone) {
  if (failed_) return fail_inside({}, gone);
  const Slot* slot = session_.board().slot_of(gone);
  const auto last = slot ? slot->last_call.get() : std::nullopt;
  fail_inside(fmt::format("rank {} (process {}) is gone{}", gone, slot ? slot->pid : 0,
                          last ? "; its last call was " + to_string(*last) : ""),
              gone);
}

Outcome World::finish(const Outcome& outcome) {
  {
    const Entry entry(*this);
    session_.board().mine().finished = true;
    Control control{.kind = Control::Kind::Finished,
                    .outcome = outcome.kind,
                    .not_implemented = outcome.not_implemented,
                    .next_id = session_.next_id};
    control.set_text(outcome.text);
    send_to_all(control);
    Peer& me = peers_[static_cast<std::size_t>(rank())];
    me.finished = std::chrono::steady_clock::now();
    me.outcome = outcome;
    const auto all_returned = [&] { return all([](const Peer& p) { return !!p.finished; }); };
    wait_until([&] { return failed_ || all_returned(); }, {});
    if (!wait_until(all_returned, std::chrono::steady_clock::now() + timeout_)) {
      std::string who;
      for (int r = 0; r < size(); ++r)
        if (const Peer& p = peers_[static_cast<std::size_t>(r)]; !p.finished && !p.gone)
          who += (who.empty() ? "" : ", ") + std::to_string(r);
      abort_all(fmt::format("{}\nrank {} has not returned {:.1f} s later; all processes end",
                            failure_, who, options_.timeout_seconds));
    }
    const auto told = [&] {
      return std::none_of(flights_.begin(), flights_.end(), [](const Flight& flight) {
        return flight.kind == Flight::Kind::ControlSend;
      });
    };
    wait_until(told, std::chrono::steady_clock::now() + kGrace);
  }
  for (const Outcome::Kind kind : {Outcome::Kind::Failed, Outcome::Kind::Echo})
    for (const Peer& peer : peers_)
      if (peer.outcome.kind == kind) return peer.outcome;
  return has_failed() ? Outcome{Outcome::Kind::Failed, false, failure_} : Outcome{};
}

void World::abort_all(const std::string& message) {
  if (session_.board().claim_report()) std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(stderr);
  MPI_Abort(session_.comm(), kStuckExitStatus);
  std::_Exit(kStuckExitStatus);
}

void World::close() {
  if (std::exchange(closed_, true)) return;
  {
    const std::lock_guard lock(helper_mutex_);
    stop_ = true;
  }
  helper_wake_.notify_all();
  if (helper_.joinable()) helper_.join();
  restore_term();
  session_.running = nullptr;
  // For a Work that outlives the launch.
  if (!failed_) failure_ = "world: the launch is over";
  failed_ = true;
  // What nobody has received stays MPI's.
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (flights_[i].kind != Flight::Kind::ControlRecv) {
      MPI_Request_free(&requests_[i]);
      continue;
    }
    MPI_Cancel(&requests_[i]);
    MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);
  }
  requests_.clear();
  flights_.clear();
}

World::~World() { close(); }

// What this rank's waiting depends on: messages that are not over.
std::vector<int> World::missing_of(const Operation& what) const {
  const Operation& first = what.runs_first();
  std::vector<int> ranks;
  for (const Flight& flight : flights_)
    if (flight.owner.get() == &first) ranks.push_back(flight.queue->peer);
  for (const std::unique_ptr<Queue>& queue : first.group().queues()) {
    const auto is_its = [&](const Queue::Waiting& it) { return it.owner.get() == &first; };
    if (queue && std::any_of(queue->waiting.begin(), queue->waiting.end(), is_its))
      ranks.push_back(queue->peer);
  }
  return ranks;
}

std::vector<int> World::missing() const {
  std::vector<int> ranks;
  for (const Operation* what : waits_for_)
    if (!what->over()) {
      const std::vector<int> more = missing_of(*what);
      ranks.insert(ranks.end(), more.begin(), more.end());
    }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

State World::own_state() const {
  const Slot& slot = session_.board().mine();
  State state{.finished = slot.finished, .last_call = slot.last_call, .waits_in = slot.waits_in};
  for (const int rank : missing()) {
    if (state.missing_count == State::kMostMissing) break;
    state.missing[state.missing_count++] = rank;
  }
  return state;
}

bool World::waits_for_finished_rank(Time now) const {
  const std::vector<int> ranks = missing();
  return std::any_of(ranks.begin(), ranks.end(), [&](int r) {
    const auto& finished = peers_[static_cast<std::size_t>(r)].finished;
    return finished && now - *finished > kReturnedTime;
  });
}

// The ranks by their answers.
class World::Observer final : public RankObserver {
 public:
  explicit Observer(const World& world) : world_(world) {}

  int size() const override { return world_.size(); }
  RankStatus status(int rank) const override {
    const Peer& peer = world_.peers_[static_cast<std::size_t>(rank)];
    if (peer.state)
      return {true, peer.state->finished, peer.state->last_call.get(), peer.state->waits_in.get()};
    // Who does not answer may have left something on the board.
    RankStatus status{.answers = false};
    if (const Slot* slot = world_.session_.board().slot_of(rank))
      status.last_call = slot->last_call.get();
    return status;
  }
  std::vector<int> missing(int rank) const override {
    const Peer& peer = world_.peers_[static_cast<std::size_t>(rank)];
    if (!peer.state) return {};
    return {peer.state->missing, peer.state->missing + peer.state->missing_count};
  }

 private:
  const World& world_;
};

void World::ask_all() {
  for (Peer& peer : peers_) peer.state.reset();
  Peer& me = peers_[static_cast<std::size_t>(rank())];
  me.state = own_state();
  send_to_all({.kind = Control::Kind::Ask});
  const auto answered = [&] { return failed_ || all([](const Peer& p) { return !!p.state; }); };
  wait_until(answered, std::chrono::steady_clock::now() + kAnswerTime);
  me.state = own_state();
}

std::string World::diagnose(double waited_seconds) const {
  return aisc::diagnose(Observer(*this), rank(), waited_seconds);
}

}  // namespace aisc::mpi
