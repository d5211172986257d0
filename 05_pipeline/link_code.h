// What stages may send in place of a tensor: its code, in fewer bytes (10_model_compression/more).
#pragma once

#include <memory>

#include "common/core/tensor.h"

namespace aisc {

class LinkCode {
 public:
  virtual ~LinkCode() = default;
  // The shape of a code, which is U8, of a tensor of this shape: the receiver knows no more.
  virtual Shape coded(const Shape& shape) const = 0;
  virtual Tensor encode(const Tensor& x) const = 0;
  // Of x's type and shape.
  virtual Tensor decode(const Tensor& code, DType dtype) const = 0;
};

// Of activations and of their gradients; null: they are sent as they are.
struct LinkCodes {
  std::shared_ptr<const LinkCode> forward = {}, backward = {};
};

}  // namespace aisc
