// The readers of files that nobody vouches for, as functions of the files' bytes: what the fuzzer
// calls, and what the tests call again with its seeds and findings.
#pragma once

#include <cstdint>
#include <span>

namespace aisc {

struct FuzzTarget {
  const char* name;  // of its folder below seeds/ and findings/
  // Reads `bytes` and uses what it found. An Error is an answer; a crash, another exception, memory
  // out of proportion or an endless loop is a finding.
  void (*run)(std::span<const std::uint8_t> bytes);
};

std::span<const FuzzTarget> fuzz_targets();

}  // namespace aisc
