// Texts of all ranks, on rank 0.
#pragma once

#include <string>
#include <vector>

#include "common/comm/rank.h"

namespace aisc {

// By rank; empty elsewhere. Collective.
std::vector<std::string> gather_texts(const Rank& rank, const std::string& mine);

}  // namespace aisc
