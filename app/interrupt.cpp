#include "app/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

namespace aisc {
namespace {

// The state that cannot be passed by reference: a signal handler has no argument for it. Atomic,
// since the handler runs in whichever thread the system chooses.
std::atomic<int> first_signal = 0;
std::atomic<bool> is_silent = false;
static_assert(std::atomic<int>::is_always_lock_free);  // else a handler may not touch it
static_assert(std::atomic<bool>::is_always_lock_free);

// Nothing but what may be called inside a handler (signal-safety(7)).
void on_signal(int signal_number) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal_number)) {  // asked before
    if (signal_number != SIGINT) return;  // launchers repeat SIGTERM; who is impatient, kills
    ::signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  if (is_silent) return;
  const int error = errno;  // of what was interrupted
  constexpr std::string_view kMessage = "\nEnding after this step; a second Ctrl-C ends at once.\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  errno = error;
}

// Whether SIGHUP was ignored when the program was started, asked before any library's constructors:
// UCX, which Open MPI 5 loads, takes that signal for itself (UCX_DEBUG_SIGNO).
bool hangup_was_ignored = false;
void look_at_hangup() {
  struct sigaction action = {};
  sigaction(SIGHUP, nullptr, &action);
  hangup_was_ignored = action.sa_handler == SIG_IGN;
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)() = look_at_hangup;

}  // namespace

bool hangup_is_ignored() {
  struct sigaction action = {};
  sigaction(SIGHUP, nullptr, &action);
  return action.sa_handler == SIG_IGN || (hangup_was_ignored && action.sa_handler != SIG_DFL);
}

Interrupt::Interrupt(bool says) {
  const bool ignored = hangup_is_ignored();
  first_signal = 0;
  is_silent = !says;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes in progress go on
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous_[i]);
  if (ignored) ::signal(SIGHUP, SIG_IGN);
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
}

int Interrupt::signal() const { return first_signal; }

}  // namespace aisc
