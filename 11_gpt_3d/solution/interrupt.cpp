#include "11_gpt_3d/interrupt.h"

namespace aisc {
namespace {

// The one piece of state that cannot be passed by reference: a signal handler has no argument for it.
volatile std::sig_atomic_t signal_came = 0;

// Installed with SA_RESETHAND: a second signal finds the default action and ends the process.
void on_signal(int) { signal_came = 1; }

}  // namespace

Interrupt::Interrupt() {
  signal_came = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, &previous_int_);
  sigaction(SIGTERM, &action, &previous_term_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &previous_int_, nullptr);
  sigaction(SIGTERM, &previous_term_, nullptr);
}

bool Interrupt::requested() const { return signal_came != 0; }

}  // namespace aisc
