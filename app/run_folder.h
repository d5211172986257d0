// The folder that a run leaves behind.
#pragma once

#include <cstdint>
#include <string>

namespace aisc {

// Makes `path` (empty: runs/<UTC time>, with a number behind it if that exists) and returns it.
// Throws Error, touching nothing, if the folder exists and is not empty: an earlier run is never
// overwritten.
std::string make_run_folder(const std::string& path);

// What a run that goes back to an earlier checkpoint gives up is kept: makes a folder for it,
// RUN/superseded/after_step_000005 (with a number behind it if that exists), where there are
// checkpoints of more than `step` steps. Returns its path, or "": there are none.
std::string make_superseded_folder(const std::string& run, std::int64_t step);
// Moves these checkpoints there. Throws Error.
void supersede_checkpoints(const std::string& run, std::int64_t step, const std::string& folder);

}  // namespace aisc
