#include "app/program.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>

#include "app/terminal_text.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr std::size_t kLongestPath = 200;  // that is shown whole

}  // namespace

int run_program(const char* name, const std::function<int()>& body) try {
  const int status = body();
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout);
  // Of a run that a closed terminal ended, the signal's status counts.
  if (!failed || status != 0) return status;
  std::clearerr(stdout);  // perhaps it failed long ago: another line fails for the same reason
  std::fputs("\n", stdout);
  const bool fails_still = std::fflush(stdout) != 0;
  fail(std::string("the standard output cannot be written: ") +
       (fails_still ? std::strerror(errno) : "some of it is lost"));
} catch (const std::bad_alloc&) {
  std::fflush(stdout);
  std::fputs(fmt::format("{}: the system has no more memory for this process\n", name).c_str(),
             stderr);
  return 1;
} catch (const std::filesystem::filesystem_error& e) {
  std::fflush(stdout);
  const std::string path = e.path1().string();
  std::fputs(
      fmt::format("{}: {}{}: {}\n", name, for_terminal(path.substr(0, kLongestPath)),
                  path.size() > kLongestPath ? fmt::format("... ({} bytes)", path.size()) : "",
                  e.code().message())
          .c_str(),
      stderr);
  return 1;
} catch (const std::exception& e) {
  std::fflush(stdout);
  // Not fmt::print(), which throws where the terminal is gone.
  std::fputs(fmt::format("{}: {}\n", name, for_terminal(e.what())).c_str(), stderr);
  return 1;
}

}  // namespace aisc
