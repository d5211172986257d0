// A function on a stack of its own, which can stop in the middle and go on later: a thread of the
// emulated GPU. Switching costs some nanoseconds (boost.context).
#pragma once

#include <boost/context/detail/fcontext.hpp>

#include "emulated_gpu/fiber_sanitizers.h"

namespace aisc::emulated_gpu {

// Belongs to the OS thread that makes it.
class Fiber {
 public:
  // The first resume() calls body(argument), which never returns. A guard page ends the stack.
  Fiber(void (*body)(void*), void* argument);
  // The body must be where it has nothing to clean up: its stack is not unwound.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();   // returns when the body calls suspend()
  void suspend();  // by the body only

 private:
  static void enter(boost::context::detail::transfer_t from);

  void (*body_)(void*);
  void* argument_;
  void* memory_;
  boost::context::detail::fcontext_t inside_;
  boost::context::detail::fcontext_t outside_ = nullptr;
  SanitizedStack inside_stack_;
  SanitizedStack outside_stack_;
};

}  // namespace aisc::emulated_gpu
