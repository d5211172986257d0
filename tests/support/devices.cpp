#include "tests/support/devices.h"

#include "tests/support/has_cuda.h"

namespace aisc {

std::vector<DeviceKind> device_kinds() {
  std::vector<DeviceKind> kinds{DeviceKind::Cpu};
  if (has_cuda()) kinds.push_back(DeviceKind::Cuda);
  return kinds;
}

bool has_device(DeviceKind kind) { return kind == DeviceKind::Cpu || gpu_count() > 0; }

std::unique_ptr<Device> make_test_device(DeviceKind kind, DeviceOptions options) {
  options.kind = has_device(kind) ? kind : DeviceKind::Cpu;
  return make_device(options);
}

std::string device_kind_name(DeviceKind kind) { return kind == DeviceKind::Cuda ? "cuda" : "cpu"; }

OnHost::OnHost(ConstView x) : view_(x) {
  if (!x || x.device().kind() == DeviceKind::Cpu) return;
  copy_ = Tensor(x.shape(), x.dtype(), host_);
  host_.copy(copy_, x);
  view_ = copy_;
}

}  // namespace aisc
