// What a test asks of a device's books.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "common/core/device.h"

namespace aisc {

// Fails the test if, at the end of its scope, the device holds more bytes of some purpose than at
// the beginning; the failure names purpose and bytes. Declare it before the tensors of the scope.
class NoLeak {
 public:
  explicit NoLeak(const Device& device) : device_(device), before_(device.ledger()) {}
  NoLeak(const NoLeak&) = delete;
  NoLeak& operator=(const NoLeak&) = delete;
  ~NoLeak();

  // "activations: 4096 bytes"; empty while nothing has leaked.
  std::string leak() const { return device_.ledger().leaked_since(before_); }

 private:
  const Device& device_;
  const Ledger before_;
};

// Exactly so many bytes are live for this purpose.
::testing::AssertionResult live_bytes_are(const Device& device, Purpose purpose,
                                          std::int64_t bytes);
// The same bytes are live, and were at most, for each purpose, and there were as many allocations.
void expect_same_memory(const Ledger& a, const Ledger& b);
// No allocation since `before` had to ask the system for memory.
::testing::AssertionResult no_cache_misses_since(const Device& device, const Ledger& before);

}  // namespace aisc
