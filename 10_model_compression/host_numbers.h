// Numbers of any device where the host can read them, and write them.
#pragma once

#include "common/core/tensor.h"

namespace aisc {

// Of a View, or of a ConstView that is only read. Where the memory is the host's these are the
// numbers themselves; otherwise a copy, which is there as long as this.
template <class V>
class HostNumbers {
 public:
  explicit HostNumbers(const V& numbers) : numbers_(numbers) {
    if (numbers.device().is_host()) return;
    copy_ = Tensor(numbers.shape(), numbers.dtype(), host_, Purpose::Workspace);
    numbers.device().copy(copy_, numbers);
  }
  V view() const { return copy_ ? V(copy_.view()) : numbers_; }
  // What the host has written is there for the device, too.
  void write_back() const {
    if (copy_) numbers_.device().copy(numbers_, copy_);
  }

 private:
  CpuDevice host_;
  V numbers_;
  Tensor copy_;
};

}  // namespace aisc
