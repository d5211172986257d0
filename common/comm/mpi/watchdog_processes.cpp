// Processes that are gone, and this one when it is told to go.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/comm/mpi/watchdog.h"

namespace aisc::mpi {
namespace {

using namespace std::chrono_literals;

constexpr auto kGoneLook = 100ms;  // the helper looks for ranks that are gone this often

// A signal handler has no argument for it.
std::atomic<bool> term_came = false;
static_assert(std::atomic<bool>::is_always_lock_free);
void on_term(int) { term_came = true; }

}  // namespace

void Watchdog::look() {
  const Time now = std::chrono::steady_clock::now();
  if (term_came || now - last_look_ > kGoneLook) {
    last_look_ = now;
    end_without_launcher();
    look_for_gone_ranks();
  }
  if (term_came) {
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
  }
}

// What starts ranks waits for them. Where it has ended, by two Ctrl-C or a signal that it could not
// hand on, nobody would end them.
void Watchdog::end_without_launcher() {
  if (getppid() == parent_ || !started_processes()) return;
  if (session_.board().claim_report())
    std::fputs("aisc: the launcher has ended, and with it all ranks of this node\n", stderr);
  std::_Exit(EXIT_FAILURE);
}

void Watchdog::look_for_gone_ranks() {
  if (gone_ >= 0) return;
  const int gone = session_.board().gone_rank();
  if (gone >= 0) std::fputs(session_.board().report_of(gone).c_str(), stderr);
  gone_ = gone;  // from now on the rank fails, and waits no more
}

void Watchdog::fail_if_gone() {
  if (gone_ < 0) return;
  const int gone = gone_;
  if (failed_) return fail_inside({}, gone);
  const Slot* slot = session_.board().slot_of(gone);
  fail_inside(
      fmt::format("rank {} (process {}) is gone{}", gone, slot ? slot->pid : 0, last_call_of(gone)),
      gone);
}

std::string Watchdog::last_call_of(int rank) const {
  const Slot* slot = session_.board().slot_of(rank);
  const auto last = slot ? slot->last_call.get() : std::nullopt;
  return last ? "; its last call was " + to_string(*last) : "";
}

// Programs that end gracefully on SIGTERM have a handler of their own, or install one later.
void Watchdog::catch_term() {
  term_came = false;
  sigaction(SIGTERM, nullptr, &previous_term_);
  handles_term_ = previous_term_.sa_handler == SIG_DFL;
  if (!handles_term_) return;
  struct sigaction action = {};
  action.sa_handler = on_term;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

void Watchdog::restore_term() {
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  if (std::exchange(handles_term_, false) && now.sa_handler == on_term)
    sigaction(SIGTERM, &previous_term_, nullptr);
}

}  // namespace aisc::mpi
