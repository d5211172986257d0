// Which rank owns which layer, where a model is divided by layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aisc {

// Which of `ranks` ranks owns each unit of so many elements. Units come in the order of their
// sizes, the largest first (of equal ones that of the lower index); each goes to the rank that has
// the fewest elements so far (of several the lowest). The rank with most has at most
// 4/3 - 1/(3 ranks) of what the best choice gives it (Graham, "Bounds on multiprocessing timing
// anomalies", 1969). The same on every rank; nothing is sent. Throws Error for ranks below 1.
std::vector<int> owners_of(std::span<const std::int64_t> counts, int ranks);

}  // namespace aisc
