#pragma once

#include <string>

namespace aisc {

// Measures this machine, which takes about 10 s, and writes what common/model/machine.h reads.
// Throws Error naming a file that cannot be written.
void write_machine_profile(const std::string& path, const std::string& processor);

}  // namespace aisc
