// Flags that can have no effect in this run, and a warm-up that never ends: nothing is refused for
// it, but it is said.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/options.h"

namespace aisc {

// A line each ("--overlap has no effect: ..."). `given`: is this flag ("overlap") in the command?
std::vector<std::string> remarks_of(const Options& options,
                                    const std::function<bool(const std::string&)>& given);

}  // namespace aisc
