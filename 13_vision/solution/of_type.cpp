#include "13_vision/of_type.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {

void require_images(const char* operation, const ConstView& x) {
  if (!x || x.shape().rank() != 4)
    fail(fmt::format("{}: x is {}, expected images (N, C, H, W)", operation,
                     x ? x.shape().to_string() : "empty"));
  if (x.dtype() != DType::F32 && x.dtype() != DType::F64)
    fail(fmt::format("{}: x is {}, expected F32 or F64", operation, name_of(x.dtype())));
  if (!x.device().is_host())
    fail(fmt::format("{}: x is on {}, where it is not available, expected the CPU", operation,
                     x.device().name()));
}

}  // namespace aisc
