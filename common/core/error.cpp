#include "common/core/error.h"

#include "common/core/printable.h"

namespace aisc {

NotImplemented::NotImplemented(const std::string& exercise, const char* file, int line)
    : std::logic_error(exercise + " is not implemented yet (" + file + ":" + std::to_string(line) +
                       ")") {}

void fail(const std::string& message) { throw Error(printable(message)); }

std::string printable(std::string_view text) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    const bool is_c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // two bytes of UTF-8
    if (is_c1) byte = static_cast<unsigned char>(text[++i]);
    if (is_c1 || byte == 0x7f || (byte < 0x20 && byte != '\n' && byte != '\t'))
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 0xf]};
    else
      shown += text[i];
  }
  return shown;
}

}  // namespace aisc
