#include "emulated_gpu/fiber.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>

namespace aisc::emulated_gpu {
namespace {

struct Frame {
  std::unique_ptr<Fiber> fiber;
  char* numbers = nullptr;  // on the fiber's stack
};

void stop_in_a_frame(void* argument) {
  auto* frame = static_cast<Frame*>(argument);
  char numbers[64];
  std::memset(numbers, 1, sizeof numbers);
  frame->numbers = numbers;
  for (;;) frame->fiber->suspend();
}

// The address sanitizer reports it if what it knew of the frames outlives them.
TEST(Fiber, LeavesItsMemoryToOthers) {
  Frame frame;
  frame.fiber = std::make_unique<Fiber>(stop_in_a_frame, &frame);
  frame.fiber->resume();
  frame.fiber.reset();
  constexpr std::uintptr_t kPage = 4096;
  void* page =
      reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(frame.numbers) & ~(kPage - 1));
  void* memory = mmap(page, kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(memory, page);
  std::memset(memory, 0, kPage);
  EXPECT_EQ(*frame.numbers, 0);
  munmap(memory, kPage);
}

}  // namespace
}  // namespace aisc::emulated_gpu
