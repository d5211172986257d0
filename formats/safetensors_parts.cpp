#include "formats/safetensors_parts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

constexpr mode_t kReadable = 0666;  // less what the process's mask takes away

[[noreturn]] void fail_file(const std::string& path, const char* what) {
  fail(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

// All of it: the system may write a part, and be interrupted.
void write_at(int file, const std::string& path, const void* bytes, std::size_t count,
              std::size_t offset) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = pwrite(file, from, count, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_file(path, "cannot be written");
    from += written;
    count -= static_cast<std::size_t>(written);
    offset += static_cast<std::size_t>(written);
  }
}

void confirm_and_close(int& file, const std::string& path) {
  if (fsync(file) != 0) fail_file(path, "cannot be written to the disk");
  if (::close(std::exchange(file, -1)) != 0) fail_file(path, "cannot be written");
}

}  // namespace

void SafetensorsParts::create(const std::string& path, const std::vector<SafetensorsSpec>& specs,
                              const std::map<std::string, std::string>& metadata) {
  const std::string header = safetensors_header(path, specs, metadata);
  std::size_t length = header.size();
  for (const SafetensorsSpec& spec : specs)
    length += static_cast<std::size_t>(spec.shape.count()) * size_of(spec.dtype);
  int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kReadable);
  if (file < 0) fail_file(path, "cannot be made");
  try {
    if (ftruncate(file, static_cast<off_t>(length)) != 0) fail_file(path, "cannot be written");
    write_at(file, path, header.data(), header.size(), 0);
    confirm_and_close(file, path);
  } catch (const Error&) {
    if (file >= 0) ::close(file);
    unlink(path.c_str());
    throw;
  }
}

SafetensorsParts::SafetensorsParts(const std::string& path) : path_(path) {
  const Safetensors header(path);
  for (const SafetensorsEntry& entry : header.entries()) entries_[entry.name] = entry;
  file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file_ < 0) fail_file(path_, "cannot be written");
}

SafetensorsParts::~SafetensorsParts() {
  if (file_ >= 0) ::close(file_);
}

void SafetensorsParts::write(const std::string& name, std::int64_t begin, ConstView values) {
  if (file_ < 0) fail(path_ + ": nothing can be written after close()");
  const auto found = entries_.find(name);
  if (found == entries_.end())
    fail(fmt::format("{}: no tensor \"{}\" among its {}", path_, name, entries_.size()));
  const SafetensorsEntry& entry = found->second;
  if (entry.dtype != name_of(values.dtype()))
    fail(fmt::format("{}: \"{}\": found {}, expected {}", path_, name, name_of(values.dtype()),
                     entry.dtype));
  const std::size_t element = size_of(values.dtype());
  const auto count = static_cast<std::int64_t>(entry.bytes / element);
  if (begin < 0 || values.count() > count || begin > count - values.count())
    fail(fmt::format("{}: \"{}\": found elements [{}, {}), expected some of its {}", path_, name,
                     begin, begin + values.count(), count));
  if (values.count() == 0) return;
  if (!values.device().is_host())
    fail(fmt::format("{}: \"{}\": found values on {}, expected on the host", path_, name,
                     values.device().name()));
  write_at(file_, path_, values.raw(), values.bytes(),
           entry.offset + static_cast<std::size_t>(begin) * element);
}

void SafetensorsParts::close() {
  if (file_ >= 0) confirm_and_close(file_, path_);
}

}  // namespace aisc
