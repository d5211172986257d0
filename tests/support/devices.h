// The devices that tests run on: the CPU, and a GPU where this build has CUDA, real or emulated.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/core/tensor.h"

namespace aisc {

// The kinds that this build has. What it costs nothing to ask: nothing is started.
std::vector<DeviceKind> device_kinds();
// False where this machine has no such device: the test is then skipped, since it has no GPU.
bool has_device(DeviceKind kind);
// A device whose new memory is NaN, if `options` do not say otherwise. Where has_device() is false
// it is a CPU's, so that a fixture has its members before it is skipped.
std::unique_ptr<Device> make_test_device(DeviceKind kind, DeviceOptions options = {.poison = true});

// "cpu" or "cuda".
std::string device_kind_name(DeviceKind kind);
inline std::string device_kind_test_name(const ::testing::TestParamInfo<DeviceKind>& info) {
  return device_kind_name(info.param);
}

// A suite that runs once for each kind of device: device_ is one, unless the test is skipped.
class PerDevice : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam())) GTEST_SKIP() << "no GPU";
  }

  const std::unique_ptr<Device> owned_device_ = make_test_device(GetParam());
  Device& device_ = *owned_device_;
};

// x where the host can read it: a copy if x is on a GPU.
class OnHost {
 public:
  explicit OnHost(ConstView x);
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  ConstView view() const { return view_; }

 private:
  CpuDevice host_;
  Tensor copy_;
  ConstView view_;
};

// What `call` asks of `device`, done: a GPU says what was wrong with its data when it is waited
// for.
template <class Call>
void call_and_wait(Device& device, Call&& call) {
  call();
  device.synchronize();
}

}  // namespace aisc
