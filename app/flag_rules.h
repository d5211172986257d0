// What flags ask of each other.
#pragma once

#include <functional>
#include <string>

#include "app/options.h"

namespace aisc {

// Checks flags that are parsed, and sets those that follow from others. `here`: is this flag
// ("overlap") in the command or the file of --config, and not only in the config.json of a run that
// is resumed? Throws Error: which flags, and what is expected.
using IsHere = std::function<bool(const std::string& flag)>;
void require_alone(const Options& options);
void require_parallel(Options& options, const IsHere& here);

}  // namespace aisc
