#include "app/program.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "app/terminal_text.h"
#include "common/core/error.h"

namespace aisc {

int run_program(const char* name, const std::function<int()>& body) try {
  const int status = body();
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    fail(std::string("the standard output cannot be written: ") + std::strerror(errno));
  return status;
} catch (const std::exception& e) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", name, for_terminal(e.what()));
  return 1;
}

}  // namespace aisc
