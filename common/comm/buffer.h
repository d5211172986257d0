// What a communicator sends and receives: a run of elements on a device, and a share of the tensor
// behind it, so that the memory lives until the operation is over.
#pragma once

#include <span>

#include "common/core/tensor.h"

namespace aisc {

// From a Tensor a buffer takes a share; from a View it takes none, and the caller keeps the memory
// alive until wait() returns. Only the count and the type matter; shapes do not travel.
template <class ItsView>
class AnyBuffer {
 public:
  AnyBuffer() = default;  // empty: 0 elements of no device
  AnyBuffer(const Tensor& tensor) : view_(tensor.view()), owner_(tensor.share()) {}
  AnyBuffer(const ItsView& view) : view_(view) {}

  const ItsView& view() const { return view_; }
  std::int64_t count() const { return view_.count(); }
  std::size_t bytes() const { return view_.bytes(); }
  DType dtype() const { return view_.dtype(); }
  AnyBuffer share() const {  // copies are explicit, as for Tensor
    AnyBuffer other(view_);
    other.owner_ = owner_.share();
    return other;
  }

 private:
  ItsView view_;
  Tensor owner_;
};
using ConstBuffer = AnyBuffer<ConstView>;
using Buffer = AnyBuffer<View>;

// False for a view of nothing, which lies nowhere.
inline bool lies_on_gpu(const ConstView& view) {
  return view && view.device().kind() == DeviceKind::Cuda;
}

}  // namespace aisc
