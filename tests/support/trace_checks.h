// What a test asks of a trace: what came after what, and what ran beside what.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/core/trace.h"

namespace aisc {

// Spans of these names ran one after the other: each began when the one before had ended, or later.
// Others may lie between them. A failure says how far the order was found, and what there was.
::testing::AssertionResult in_order(const std::vector<TraceEvent>& events,
                                    const std::vector<std::string>& names);

// Some span named `a` and some span named `b` share time: one began before the other had ended.
::testing::AssertionResult overlapping(const std::vector<TraceEvent>& events, const std::string& a,
                                       const std::string& b);

}  // namespace aisc
