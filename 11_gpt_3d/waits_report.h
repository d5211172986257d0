// What traces of a run say of waiting: who waits for whom now, or who came last.
#pragma once

#include <string>
#include <vector>

namespace aisc {

// Of files in Chrome's trace format as Trace writes them, of all ranks or of one each. Where a call
// never came back: in which call each rank is, for whom it waits, and where to look (waits.h); a
// rank without a trace has ended. Else: which rank came last to how many calls, and for how long
// others waited for it, all together. Throws Error naming the file that is no such trace, and where
// none has a call.
std::string waits_report(const std::vector<std::string>& paths);

}  // namespace aisc
