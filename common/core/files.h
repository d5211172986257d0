// Whole files, read and written so that nothing half-written is ever left under a final name.
#pragma once

#include <string>

namespace aisc {

// The bytes of a file. Throws Error with the path and the system's reason.
std::string read_file(const std::string& path);

// Writes under a temporary name beside `path`, then renames. Throws Error; then `path` is
// untouched.
void write_file(const std::string& path, const std::string& bytes);

}  // namespace aisc
