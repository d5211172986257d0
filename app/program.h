// How a program ends.
#pragma once

#include <functional>

namespace aisc {

// Returns the exit status of `body`; 1 if it throws, which is told on the standard error, or if all
// went well but something that was printed could not be written, on a full disk say.
int run_program(const char* name, const std::function<int()>& body);

}  // namespace aisc
