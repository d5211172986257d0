// F8 on a GPU where this program was built without CUDA.
#include <fmt/format.h>

#include "10_model_compression/more/eight_bits_gpu.h"
#include "common/core/error.h"

namespace aisc::f8_gpu {
namespace {

[[noreturn]] void no_cuda_for_f8(const ConstView& x) {
  fail(
      fmt::format("F8: numbers on {}, expected on the host: this program was built without CUDA "
                  "(./aisc build cuda makes one with it)",
                  x.device().name()));
}

}  // namespace

float largest_magnitude(ConstView x) { no_cuda_for_f8(x); }
void find_scale(View /*scale*/, ConstView x, const NumberFormat& /*format*/) { no_cuda_for_f8(x); }
void to_f8(const F8Tensor& /*out*/, ConstView x, float /*scale*/) { no_cuda_for_f8(x); }
void from_f8(View out, const F8Tensor& /*x*/) { no_cuda_for_f8(out); }
void round_to_f8(View /*out*/, ConstView x, const NumberFormat& /*format*/,
                 const ScaleBlocks& /*blocks*/, float /*scale*/) {
  no_cuda_for_f8(x);
}
void transpose(View /*to*/, ConstView from) { no_cuda_for_f8(from); }
bool multiply(View out, const F8Tensor& /*a*/, const F8Tensor& /*b*/, ops::Into /*into*/,
              ConstView /*bias*/) {
  no_cuda_for_f8(out);
}

}  // namespace aisc::f8_gpu
