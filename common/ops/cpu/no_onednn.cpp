// Products where the program is built without oneDNN (as under ThreadSanitizer, which cannot see
// into its threads).
#include "common/ops/cpu/products.h"

namespace aisc::cpu {

bool library_has_f32(Device&) { return false; }

void library_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  plain_product(out, a, b, options);
}

}  // namespace aisc::cpu
