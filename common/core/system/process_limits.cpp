#include "common/core/system/process_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

void require_open_files(std::int64_t count, const std::string& who) {
  const auto wanted = static_cast<rlim_t>(count);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  const rlim_t found = limit.rlim_cur;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (limit.rlim_cur == wanted && setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  fail(fmt::format("{} opens up to {} files at once, {} are allowed: raise it (ulimit -n)", who,
                   count, found));
}

void require_file_bytes(std::int64_t bytes, const std::string& who) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(bytes)) return;
  fail(fmt::format(
      "{} writes files of {:.1f} MB, none above {:.1f} MB is allowed: raise it "
      "(ulimit -f)",
      who, static_cast<double>(bytes) / 1e6, static_cast<double>(limit.rlim_cur) / 1e6));
}

}  // namespace aisc
