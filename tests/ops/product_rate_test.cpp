// What a device makes of products is a number between what nobody is slow enough for and what
// nobody reaches; and measuring it leaves nothing behind.
#include "common/ops/product_rate.h"

#include <gtest/gtest.h>

#include "tests/support/ledger_checks.h"

namespace aisc {
namespace {

TEST(ProductRate, IsMeasuredInEveryTypeAndGivesItsMemoryBack) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    CpuDevice device;
    const double rate = measure_product_rate(device, dtype);
    EXPECT_GT(rate, 1e6) << name_of(dtype);
    EXPECT_LT(rate, 1e16) << name_of(dtype);
    EXPECT_TRUE(live_bytes_are(device, Purpose::Workspace, 0));
    EXPECT_EQ(device.ledger().cached_bytes, 0);
  }
}

}  // namespace
}  // namespace aisc
