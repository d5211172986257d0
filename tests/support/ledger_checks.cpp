#include "tests/support/ledger_checks.h"

namespace aisc {

NoLeak::~NoLeak() {
  const std::string leaks = leak();
  if (!leaks.empty()) ADD_FAILURE() << "leaked on " << device_.name() << ": " << leaks;
}

::testing::AssertionResult live_bytes_are(const Device& device, Purpose purpose,
                                          std::int64_t bytes) {
  const Ledger ledger = device.ledger();
  if (ledger[purpose].live_bytes == bytes) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << ledger[purpose].live_bytes << " bytes of " << name_of(purpose) << " are live, expected "
         << bytes << "\n"
         << ledger.to_string();
}

void expect_same_memory(const Ledger& a, const Ledger& b) {
  const auto same = [](const Usage& x, const Usage& y, const char* what) {
    EXPECT_EQ(x.live_bytes, y.live_bytes) << what;
    EXPECT_EQ(x.peak_bytes, y.peak_bytes) << what;
  };
  for (int p = 0; p < kPurposeCount; ++p)
    same(a[static_cast<Purpose>(p)], b[static_cast<Purpose>(p)], name_of(static_cast<Purpose>(p)));
  same(a.total, b.total, "total");
  EXPECT_EQ(a.allocations, b.allocations);
}

::testing::AssertionResult no_cache_misses_since(const Device& device, const Ledger& before) {
  const Ledger ledger = device.ledger();
  const std::int64_t misses = ledger.cache_misses - before.cache_misses;
  if (misses == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << misses << " of " << ledger.allocations - before.allocations
         << " allocations missed the cache, expected none";
}

}  // namespace aisc
