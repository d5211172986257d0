// Whether this build has CUDA, real or emulated: in cuda/ or no_cuda.cpp, whichever was compiled.
#pragma once

namespace aisc {

bool has_cuda();

}  // namespace aisc
