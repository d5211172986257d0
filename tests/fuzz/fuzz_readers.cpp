// libFuzzer's entry point for every reader; AISC_FUZZ_TARGET names the one to call
// (tools/authors/fuzz).
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const char* wanted = std::getenv("AISC_FUZZ_TARGET");
  for (const aisc::FuzzTarget& target : aisc::fuzz_targets())
    if (wanted && std::string_view(target.name) == wanted) {
      target.run({data, size});
      return 0;
    }
  std::fprintf(stderr, "AISC_FUZZ_TARGET=%s: expected one of\n", wanted ? wanted : "");
  for (const aisc::FuzzTarget& target : aisc::fuzz_targets())
    std::fprintf(stderr, "  %s\n", target.name);
  std::exit(2);
}
