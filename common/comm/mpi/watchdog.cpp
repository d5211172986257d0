// What the ranks of a launch tell each other beside their programs' messages: that they have come,
// failed, returned.
#include "common/comm/mpi/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "common/comm/mpi/operation.h"
#include "common/core/error.h"

namespace aisc::mpi {
namespace {

using namespace std::chrono_literals;

constexpr int kStuckExitStatus = 70;  // EX_SOFTWARE of sysexits.h
constexpr auto kGrace = 2s;           // for others to answer after a failure

}  // namespace

Watchdog::Watchdog(Session& session, const LaunchOptions& options, Engine& engine)
    : session_(session),
      options_(options),
      engine_(engine),
      timeout_(std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::duration<double>(options.timeout_seconds))),
      control_tag_(static_cast<int>(session.take_next_id()) * Session::kTagsPerId),
      origin_(std::chrono::steady_clock::now()),
      peers_(static_cast<std::size_t>(session.size())) {
  Slot& slot = session_.board().mine();
  slot.finished = false;
  slot.last_call.clear();
  slot.waits_in.clear();
}

bool Watchdog::all(bool (*is)(const Peer&)) const {
  return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.gone || is(p); });
}

std::string Watchdog::ranks_that(const std::function<bool(const Peer&)>& is) const {
  std::string who;
  for (int r = 0; r < session_.size(); ++r)
    if (is(peer(r))) who += (who.empty() ? "" : ", ") + std::to_string(r);
  return who;
}

void Watchdog::send(int to, const std::shared_ptr<const Control>& control) {
  if (to != session_.rank() && !peer(to).gone) engine_.send_control(to, control_tag_, control);
}

void Watchdog::send_to_all(const Control& control) {
  const auto shared = std::make_shared<const Control>(control);
  for (int r = 0; r < session_.size(); ++r) send(r, shared);
}

// Everybody reports to rank 0, which lets all go on.
void Watchdog::meet_all() {
  engine_.receive_control(control_in_, control_tag_);
  const double seconds = options_.timeout_seconds;
  const Time deadline = std::chrono::steady_clock::now() + timeout_;
  Control control{.check_calls = options_.check_calls,
                  .message_bytes = options_.internals.message_bytes};
  if (session_.rank() == 0) {
    me().hello = true;
    const auto all_came = [&] { return failed_ || all([](const Peer& p) { return p.hello; }); };
    if (!engine_.wait_until(all_came, deadline))
      fail_inside(fmt::format("launch: rank {} has not come after {:.1f} s",
                              ranks_that([](const Peer& p) { return !p.hello; }), seconds));
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
    if (!engine_.wait_until([&] { return failed_ || has_go_; }, deadline + kGrace))
      fail_inside(fmt::format("launch: rank 0 has not come after {:.1f} s", seconds));
  }
  if (!has_go_) {
    session_.broken = true;  // to finalize is to meet as well
    throw_failure();
  }
}

// The next is received before this one is handled.
void Watchdog::received(int from) {
  const Control control = control_in_;
  engine_.receive_control(control_in_, control_tag_);
  handle(control, from);
}

void Watchdog::handle(const Control& control, int from) {
  Peer& peer = this->peer(from);
  switch (control.kind) {
    case Control::Kind::Hello:
      peer.hello = true;
      if (control.check_calls != options_.check_calls ||
          control.message_bytes != options_.internals.message_bytes)
        fail_inside(
            fmt::format("launch: rank {} has check_calls {}, message_bytes {}; rank 0 has "
                        "{}, {}",
                        from, control.check_calls, control.message_bytes, options_.check_calls,
                        options_.internals.message_bytes));
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
      // Who has been told of a failure waits no more, and would look as if it had not waited: the
      // rank that asks, which the failure is still on its way to, is told of it in place of that.
      if (failed_) return send(from, failure_control());
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

void Watchdog::begin(const Call& call, std::uint64_t sequence, const std::string& communicator) {
  if (failed_) throw_failure();
  session_.board().mine().last_call.set(call, sequence, communicator);
}

void Watchdog::fail(const std::string& message) {
  const Engine::Entry entry(engine_);
  fail_inside(message);
}

std::string Watchdog::failure() {
  const Engine::Entry entry(engine_);
  return failure_;
}

void Watchdog::throw_failure() const { aisc::fail(failure_); }

// From here on nothing is posted, and receives are called back, so that the memory behind them may
// be freed. Those that a message has found already end by themselves.
void Watchdog::fail_inside(const std::string& message, int gone, bool tell) {
  if (gone >= 0) {
    peer(gone).gone = true;
    session_.broken = true;
  }
  if (failed_) return;
  failure_ = message;
  failed_ = true;
  quiet_deadline_ = std::chrono::steady_clock::now() + kGrace;
  if (tell) {
    const auto control = failure_control(gone);
    for (int r = 0; r < session_.size(); ++r) send(r, control);
  }
  engine_.call_back_receives();
  tell_when_quiet();
}

std::shared_ptr<const Control> Watchdog::failure_control(int gone) const {
  auto control = std::make_shared<Control>();
  control->kind = Control::Kind::Failure;
  control->has_met = has_go_;
  control->gone = gone;
  control->set_text(failure_);
  return control;
}

void Watchdog::tell_when_quiet() {
  if (quiet_told_ || engine_.is_receiving()) return;
  quiet_told_ = me().quiet = true;
  send_to_all({.kind = Control::Kind::Quiet});
}

// A message that nobody will receive touches nothing: when no rank has a receive open, sends are as
// good as over.
void Watchdog::wait_for_quiet(const std::shared_ptr<Members>& members) {
  std::deque<std::shared_ptr<Operation>> dropped;  // after the lock: the last may hold the members
  const Engine::Entry entry(engine_);
  engine_.wait_until([&] { return all([](const Peer& p) { return p.quiet; }); }, quiet_deadline_);
  members->drop_operations(dropped);
}

Outcome Watchdog::finish(const Outcome& outcome) {
  {
    const Engine::Entry entry(engine_);
    session_.board().mine().finished = true;
    Control control{.kind = Control::Kind::Finished,
                    .outcome = outcome.kind,
                    .not_implemented = outcome.not_implemented,
                    .next_id = session_.next_id};
    control.set_text(outcome.text);
    send_to_all(control);
    me().finished = std::chrono::steady_clock::now();
    me().outcome = outcome;
    const auto all_returned = [&] { return all([](const Peer& p) { return !!p.finished; }); };
    engine_.wait_until([&] { return failed_ || all_returned(); }, {});
    if (!engine_.wait_until(all_returned, std::chrono::steady_clock::now() + timeout_)) {
      const std::string who = ranks_that([](const Peer& p) { return !p.finished && !p.gone; });
      abort_all(fmt::format("{}\nrank {} has not returned {:.1f} s later; all processes end",
                            failure_, who, options_.timeout_seconds));
    }
    const auto told = [&] { return !engine_.is_sending_control(); };
    engine_.wait_until(told, std::chrono::steady_clock::now() + kGrace);
  }
  for (const Outcome::Kind kind : {Outcome::Kind::Failed, Outcome::Kind::Echo})
    for (const Peer& peer : peers_)
      if (peer.outcome.kind == kind) return peer.outcome;
  return has_failed() ? Outcome{Outcome::Kind::Failed, false, failure_} : Outcome{};
}

void Watchdog::abort_all(const std::string& message) {
  if (session_.board().claim_report()) std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(stderr);
  MPI_Abort(session_.comm(), kStuckExitStatus);
  std::_Exit(kStuckExitStatus);
}

// For a Work that outlives the launch.
void Watchdog::close() {
  restore_term();
  if (!failed_) failure_ = "world: the launch is over";
  failed_ = true;
}

}  // namespace aisc::mpi
