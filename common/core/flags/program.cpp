#include "common/core/flags/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>

#include "common/core/error.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

constexpr std::size_t kLongestPath = 200;  // that is shown whole

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) try {
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

int program(int argc, char** argv, const std::string& about,
            const std::function<void(CommandLine&)>& declare, const std::function<void()>& body) {
  return run_program(std::filesystem::path(argv[0]).filename().string(), [&] {
    CommandLine line(about);
    declare(line);
    if (const auto status = line.parse(argc, argv)) return *status;
    body();
    return 0;
  });
}

int measuring_program(int argc, char** argv, const std::string& about,
                      const std::function<void(CommandLine&)>& declare,
                      const std::function<nlohmann::ordered_json()>& body) {
  std::string json;
  return program(
      argc, argv, about,
      [&](CommandLine& line) {
        declare(line);
        line.text("--json", json, "also write all numbers to this file, for tools/plot");
      },
      [&] {
        const nlohmann::ordered_json all = body();
        if (!json.empty()) write_file(json, all.dump(1) + "\n");
      });
}

void print_table(const nlohmann::ordered_json& rows) {
  constexpr std::size_t kNarrowest = 11;
  const auto cell = [&](const std::string& key, const std::string& text) {
    fmt::print("{:>{}}", text, std::max(key.size(), kNarrowest) + 1);
  };
  for (const auto& [key, value] : rows[0].items()) cell(key, key);
  for (const auto& row : rows) {
    fmt::print("\n");
    for (const auto& [key, value] : row.items())
      cell(key, value.is_number_float() ? fmt::format("{:.4g}", value.get<double>())
                : value.is_string()     ? value.get<std::string>()
                : value.is_null()       ? "-"
                                        : value.dump());
  }
  fmt::print("\n\n");
}

}  // namespace aisc
