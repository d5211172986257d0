// The kernels of GPUs where this program is built without CUDA.
#include "common/core/error.h"
#include "common/ops/kernels.h"

namespace aisc::ops {

const Kernels& cuda_kernels() {
  fail("ops: no kernels for a GPU: this program was built without CUDA");
}

}  // namespace aisc::ops
