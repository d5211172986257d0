#include "tests/support/has_cuda.h"

namespace aisc {

bool has_cuda() { return true; }

}  // namespace aisc
