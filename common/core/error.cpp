#include "common/core/error.h"

namespace aisc {

NotImplemented::NotImplemented(const std::string& exercise, const char* file, int line)
    : std::logic_error(exercise + " is not implemented yet (" + file + ":" + std::to_string(line) +
                       ")") {}

void fail(const std::string& message) { throw Error(message); }

}  // namespace aisc
