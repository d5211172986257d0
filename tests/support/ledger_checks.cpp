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

::testing::AssertionResult peak_bytes_at_most(const Device& device, Purpose purpose,
                                              std::int64_t bytes) {
  const Ledger ledger = device.ledger();
  if (ledger[purpose].peak_bytes <= bytes) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "the peak of " << name_of(purpose) << " is " << ledger[purpose].peak_bytes
         << " bytes, expected at most " << bytes << "\n"
         << ledger.to_string();
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
