// The traces of all ranks in one picture.
#pragma once

#include <string>

#include "common/comm/rank.h"

namespace aisc {

// Rank 0 writes a file of Chrome's trace format in which every rank's trace is a process.
// Collective: the others send theirs. Throws Error naming the file.
void write_traces(const Rank& rank, const std::string& path);

// Of a rank other than 0 that cannot send its trace any more, behind an error: the file's name.
std::string trace_of(int rank);  // "trace.rank_3.json"

}  // namespace aisc
