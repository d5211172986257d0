#include "common/core/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/core/error.h"

namespace aisc {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail_file(const std::string& path, const char* what) {
  fail(path + ": " + what + ": " + std::strerror(errno));
}

}  // namespace

std::string read_file(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) fail_file(path, "cannot be opened");
  std::string bytes;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file.get()))
    bytes.append(buffer, n);
  if (std::ferror(file.get())) fail_file(path, "cannot be read");
  return bytes;
}

void write_file(const std::string& path, const std::string& bytes) {
  const std::string temporary = path + ".tmp";
  File file(std::fopen(temporary.c_str(), "wb"), std::fclose);
  if (!file) fail_file(temporary, "cannot be written");
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  if (std::fclose(file.release()) != 0 || !written) {
    const int reason = errno;
    std::remove(temporary.c_str());
    errno = reason;
    fail_file(temporary, "cannot be written");
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(temporary.c_str());
    errno = reason;
    fail_file(path, "cannot be replaced");
  }
}

}  // namespace aisc
