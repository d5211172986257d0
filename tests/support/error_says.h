// Does a call fail, and does its message say what went wrong?
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace aisc {

// `call` throws Error, and its message contains every one of `fragments`: the operation, what was
// found, what was expected.
::testing::AssertionResult error_says(const std::function<void()>& call,
                                      const std::vector<std::string>& fragments);

}  // namespace aisc
