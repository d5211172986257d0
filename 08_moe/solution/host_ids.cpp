#include "08_moe/host_ids.h"

namespace aisc {

Tensor ids_on(Device& device, std::span<const std::int32_t> ids) {
  const Shape shape{std::ssize(ids)};
  Tensor there(shape, DType::I32, device);
  CpuDevice host;
  device.copy(there, ConstView(ids.data(), shape, DType::I32, host));
  return there;
}

std::vector<std::int32_t> ids_of(const Tensor& ids) {
  std::vector<std::int32_t> here(index(ids.count()));
  CpuDevice host;
  ids.device().copy(View(here.data(), ids.shape(), DType::I32, host), ids);
  return here;
}

}  // namespace aisc
