// A GPU that nobody computes on: to see what refuses it, where there is none.
#pragma once

#include <cstdlib>

#include "common/core/device.h"
#include "common/core/tensor.h"

namespace aisc {

class SomeGpu final : public Device {
 public:
  SomeGpu() : Device(0) {}
  ~SomeGpu() override { trim(); }
  const char* name() const override { return "cuda:0"; }
  DeviceKind kind() const override { return DeviceKind::Cuda; }

 private:
  void* do_allocate(std::size_t bytes) override { return std::malloc(bytes); }
  void do_free(void* block) noexcept override { std::free(block); }
  void do_poison(void*, std::size_t) override {}
  Work do_copy(View, ConstView, Queue) override { return {}; }
  void do_zero(void*, std::size_t) override {}
};

}  // namespace aisc
