// The message of the Error that a call throws.
#pragma once

#include <string>

#include "common/core/error.h"

namespace aisc {

// "" if `call` throws nothing; another exception than Error passes through.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace aisc
