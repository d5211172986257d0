// The folder that a run leaves behind.
#pragma once

#include <string>

namespace aisc {

// Makes `path` (empty: runs/<UTC time>, with a number behind it if that exists) and returns it.
// Throws Error, touching nothing, if the folder exists and is not empty: an earlier run is never
// overwritten.
std::string make_run_folder(const std::string& path);

}  // namespace aisc
