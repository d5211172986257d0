// The traces of all ranks in one picture.
#pragma once

#include <string>

#include "common/comm/rank.h"

namespace aisc {

// Rank 0 writes a file of Chrome's trace format in which every rank's trace is a process.
// Collective: the others send theirs. Throws Error naming the file.
void write_traces(const Rank& rank, const std::string& path);

}  // namespace aisc
