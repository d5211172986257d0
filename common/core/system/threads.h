// Threads that the system may refuse: because of its own limits, or of this process's.
#pragma once

#include <functional>
#include <thread>

namespace aisc {

// Between two looks at what another core is to write: for some tens of cycles this core asks for
// nothing. (ARM's `yield` passes at once on cores that run one thread; `isb` takes about as long as
// x86's `pause`.)
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Starts a thread. Throws Error where there can be no more: std::thread's own exception says
// neither what was wanted nor what is in the way.
std::thread start_thread(std::function<void()> body);

// Whether so many threads can run beside those that there are: they are started, and end. Another
// process may take their place at any time.
bool can_start_threads(int count);

// Makes the calling thread's OpenMP team of `threads`, which lives on and serves its later regions.
// Throws Error where the system does not start so many: OpenMP itself would end the process.
void start_team(int threads);

// Why threads are refused, and what to do: for messages.
extern const char* const kThreadsAreLimited;

}  // namespace aisc
