#include "app/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

namespace aisc {
namespace {

// The state that cannot be passed by reference: a signal handler has no argument for it. Atomic,
// since the handler runs in whichever thread the system chooses.
std::atomic<bool> signal_came = false, is_silent = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // else a handler may not touch it

// Nothing but what may be called inside a handler (signal-safety(7)).
void on_signal(int signal_number) {
  if (signal_came.exchange(true)) {       // asked before
    if (signal_number != SIGINT) return;  // launchers repeat SIGTERM; who is impatient, kills
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  if (is_silent) return;
  constexpr std::string_view kMessage = "\nEnding after this step; a second Ctrl-C ends at once.\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
}

}  // namespace

Interrupt::Interrupt(bool says) {
  signal_came = false;
  is_silent = !says;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes in progress go on
  sigaction(SIGINT, &action, &previous_int_);
  sigaction(SIGTERM, &action, &previous_term_);
  sigaction(SIGUSR1, &action, &previous_usr1_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &previous_int_, nullptr);
  sigaction(SIGTERM, &previous_term_, nullptr);
  sigaction(SIGUSR1, &previous_usr1_, nullptr);
}

bool Interrupt::requested() const { return signal_came; }

}  // namespace aisc
