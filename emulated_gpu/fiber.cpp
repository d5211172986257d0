#include "emulated_gpu/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

namespace aisc::emulated_gpu {
namespace {

std::size_t guard_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber(void (*body)(void*), void* argument) : body_(body), argument_(argument) {
  const std::size_t guard = guard_bytes();
  memory_ = mmap(nullptr, guard + kFiberStackBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory_, guard, PROT_NONE);
  char* bottom = static_cast<char*>(memory_) + guard;
  inside_stack_ = {.bottom = bottom, .bytes = kFiberStackBytes};
  create(inside_stack_);
  // Stacks do not begin at the same place of their pages: those of a warp would all need the same
  // few lines of the cache.
  const std::size_t shift = reinterpret_cast<std::uintptr_t>(memory_) / guard % 61 * 64;
  inside_ = boost::context::detail::make_fcontext(bottom + kFiberStackBytes - shift,
                                                  kFiberStackBytes - shift, &Fiber::enter);
}

Fiber::~Fiber() {
  destroy(inside_stack_);
  munmap(memory_, guard_bytes() + kFiberStackBytes);
}

void Fiber::enter(boost::context::detail::transfer_t from) {
  auto* self = static_cast<Fiber*>(from.data);
  self->outside_ = from.fctx;
  arrived(self->inside_stack_, self->outside_stack_);
  self->body_(self->argument_);
}

void Fiber::resume() {
  switch_to(outside_stack_, inside_stack_);
  inside_ = boost::context::detail::jump_fcontext(inside_, this).fctx;
  SanitizedStack left = inside_stack_;  // its place is known
  arrived(outside_stack_, left);
}

void Fiber::suspend() {
  switch_to(inside_stack_, outside_stack_);
  outside_ = boost::context::detail::jump_fcontext(outside_, this).fctx;
  arrived(inside_stack_, outside_stack_);
}

}  // namespace aisc::emulated_gpu
