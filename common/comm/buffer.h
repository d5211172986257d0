// What a communicator sends and receives: a run of elements on a device, and a share of the tensor
// behind it, so that the memory lives until the operation is over.
#pragma once

#include <span>

#include "common/core/tensor.h"

namespace aisc {

// From a Tensor a buffer takes a share; from a View it takes none, and the caller keeps the memory
// alive until wait() returns. Only the count and the type matter; shapes do not travel.
class ConstBuffer {
 public:
  ConstBuffer() = default;  // empty: 0 elements of no device
  ConstBuffer(const Tensor& tensor) : view_(tensor), owner_(tensor.share()) {}
  ConstBuffer(const ConstView& view) : view_(view) {}

  const ConstView& view() const { return view_; }
  std::int64_t count() const { return view_.count(); }
  std::size_t bytes() const { return view_.bytes(); }
  DType dtype() const { return view_.dtype(); }
  ConstBuffer share() const;  // copies are explicit, as for Tensor

 private:
  ConstView view_;
  Tensor owner_;
};

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Tensor& tensor) : view_(tensor.view()), owner_(tensor.share()) {}
  Buffer(const View& view) : view_(view) {}

  const View& view() const { return view_; }
  std::int64_t count() const { return view_.count(); }
  std::size_t bytes() const { return view_.bytes(); }
  DType dtype() const { return view_.dtype(); }
  Buffer share() const;

 private:
  View view_;
  Tensor owner_;
};

// False for a view of nothing, which lies nowhere.
inline bool lies_on_gpu(const ConstView& view) {
  return view && view.device().kind() == DeviceKind::Cuda;
}

}  // namespace aisc
