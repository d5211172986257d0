// What the address and the thread sanitizer have to be told when a thread changes its stack;
// nothing without them. Each stack has a `SanitizedStack`; switch_to() comes right before the jump
// and arrived() right after it, on the other stack.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AISC_FIBER_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define AISC_FIBER_TSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define AISC_FIBER_ASAN
#endif
#if defined(__SANITIZE_THREAD__)
#define AISC_FIBER_TSAN
#endif

#if defined(AISC_FIBER_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(AISC_FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace aisc::emulated_gpu {

struct SanitizedStack {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  [[maybe_unused]] void* fake_stack = nullptr;  // asan: of locals that outlive their frame
  [[maybe_unused]] void* fiber = nullptr;       // tsan
};

#if defined(AISC_FIBER_ASAN) || defined(AISC_FIBER_TSAN)
inline constexpr std::size_t kFiberStackBytes = 256 * 1024;  // frames are larger
#else
inline constexpr std::size_t kFiberStackBytes = 128 * 1024;
#endif

// For the stack of a new fiber; destroy() before its memory goes back. What asan keeps of the
// frames on it would else hold for whatever is mapped there next.
inline void create([[maybe_unused]] SanitizedStack& stack) {
#if defined(AISC_FIBER_TSAN)
  stack.fiber = __tsan_create_fiber(0);
#endif
}
inline void destroy([[maybe_unused]] SanitizedStack& stack) {
#if defined(AISC_FIBER_ASAN)
  __asan_unpoison_memory_region(stack.bottom, stack.bytes);
#endif
#if defined(AISC_FIBER_TSAN)
  __tsan_destroy_fiber(stack.fiber);
#endif
}

inline void switch_to([[maybe_unused]] SanitizedStack& from, [[maybe_unused]] SanitizedStack& to) {
#if defined(AISC_FIBER_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
#if defined(AISC_FIBER_TSAN)
  if (from.fiber == nullptr) from.fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.fiber, 0);
#endif
}
// `from` learns where its stack lies, which only this call tells of an OS thread's own.
inline void arrived([[maybe_unused]] SanitizedStack& here, [[maybe_unused]] SanitizedStack& from) {
#if defined(AISC_FIBER_ASAN)
  __sanitizer_finish_switch_fiber(here.fake_stack, &from.bottom, &from.bytes);
#endif
}

}  // namespace aisc::emulated_gpu
