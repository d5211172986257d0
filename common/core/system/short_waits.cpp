#include "common/core/system/short_waits.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "common/core/system/machine.h"

namespace aisc {

void begin_with_short_waits(char** argv) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
    if (std::getenv(name)) return;
  setenv("GOMP_SPINCOUNT", "1000", 0);  // GCC's: looks
  setenv("KMP_BLOCKTIME", "0", 0);      // clang's: milliseconds, of which 0 is the only short one
  // Where OpenMP binds threads it has bound this one, and would find a single core the next time.
  Cores(usable_cores()).release();
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown) execv(self.c_str(), argv);
}

}  // namespace aisc
