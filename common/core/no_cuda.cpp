// The machine's GPUs when the program is built without CUDA: none that it could see.
#include "common/core/machine.h"

namespace aisc {

std::string describe_gpus() { return {}; }

}  // namespace aisc
