#include "common/comm/mpi/control.h"

#include <algorithm>
#include <cstring>

namespace aisc::mpi {

void Control::set_text(const std::string& its_text) {
  const std::size_t length = std::min(its_text.size(), sizeof text - 1);
  std::memcpy(text, its_text.data(), length);
  text[length] = '\0';
}

std::size_t Control::bytes() const { return offsetof(Control, text) + std::strlen(text) + 1; }

}  // namespace aisc::mpi
