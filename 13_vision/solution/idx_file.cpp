#include "13_vision/idx_file.h"

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

constexpr std::size_t kMagic = 4, kSizeBytes = 4, kMostSizes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::int64_t kMostOfSize = std::int64_t{1} << 32;  // none is as large

[[noreturn]] void wrong(const std::string& path, const std::string& what) {
  fail(fmt::format("{}: IDX: {}", path, what));
}

const char* type_name(std::uint8_t type) {
  switch (type) {
    case 0x09:
      return "signed bytes";
    case 0x0B:
      return "16-bit integers";
    case 0x0C:
      return "32-bit integers";
    case 0x0D:
      return "32-bit floating numbers";
    case 0x0E:
      return "64-bit floating numbers";
    default:
      return "no type of IDX";
  }
}

void check_magic(const std::string& path, const std::vector<std::uint8_t>& bytes) {
  if (bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
    wrong(path, "the file is compressed by gzip, expected an unpacked one: gunzip it");
  if (bytes.size() < kMagic)
    wrong(path,
          fmt::format("{} bytes, expected {} or more: 0 0 type dimensions", bytes.size(), kMagic));
  if (bytes[0] != 0 || bytes[1] != 0)
    wrong(path, fmt::format("it begins with bytes {} {}, expected 0 0", bytes[0], bytes[1]));
  if (bytes[2] != kUnsignedByte)
    wrong(path, fmt::format("elements of type 0x{:02x}, {}, expected 0x08, unsigned bytes",
                            bytes[2], type_name(bytes[2])));
  if (bytes[3] < 1 || bytes[3] > kMostSizes)
    wrong(path, fmt::format("{} dimensions, expected 1 to {}", bytes[3], kMostSizes));
}

}  // namespace

std::int64_t IdxArray::count(std::size_t first) const {
  std::int64_t product = 1;
  for (std::size_t d = first; d < sizes.size(); ++d) product *= sizes[d];
  return product;
}

IdxArray read_idx(const std::string& path) {
  const std::string text = read_file(path);
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  check_magic(path, bytes);
  const std::size_t dimensions = bytes[3], header = kMagic + dimensions * kSizeBytes;
  if (bytes.size() < header)
    wrong(path, fmt::format("it ends at byte {} of the {} sizes, expected {} bytes before elements",
                            bytes.size(), dimensions, header));
  IdxArray array;
  const std::size_t found = bytes.size() - header;
  // Sizes whose product no machine could hold must not overflow it: a double is large enough.
  double elements = 1;
  std::string said;
  for (std::size_t at = kMagic; at < header; at += kSizeBytes) {
    std::int64_t size = 0;
    for (std::size_t b = 0; b < kSizeBytes; ++b) size = size << 8 | bytes[at + b];
    array.sizes.push_back(size);
    elements *= static_cast<double>(size);
    said += fmt::format("{}{}", said.empty() ? "" : " x ", size);
  }
  if (elements != static_cast<double>(found))
    wrong(path,
          fmt::format("{} elements behind the sizes, expected {} = {:.0f}", found, said, elements));
  array.elements.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return array;
}

void write_idx(const std::string& path, const IdxArray& array) {
  const std::size_t dimensions = array.sizes.size();
  if (dimensions < 1 || dimensions > kMostSizes)
    wrong(path, fmt::format("{} dimensions to write, expected 1 to {}", dimensions, kMostSizes));
  std::string bytes{'\0', '\0', static_cast<char>(kUnsignedByte), static_cast<char>(dimensions)};
  double elements = 1;
  for (const std::int64_t size : array.sizes) {
    if (size < 0 || size >= kMostOfSize)
      wrong(path, fmt::format("a size of {} to write, expected 0 to {}", size, kMostOfSize - 1));
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 0xff);
    elements *= static_cast<double>(size);
  }
  if (elements != static_cast<double>(array.elements.size()))
    wrong(path, fmt::format("{} elements to write, expected {:.0f} of these sizes",
                            array.elements.size(), elements));
  bytes.append(array.elements.begin(), array.elements.end());
  write_file(path, bytes);
}

}  // namespace aisc
