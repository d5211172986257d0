// How much memory a program may still take.
#pragma once

#include <cstdint>
#include <string>

namespace aisc {

// Bytes that this machine can give away without taking them from other programs, or the limit of
// one of the control groups that this process is in (a container, a batch job), if that is less.
// `root` is where the system's own files are looked for; another one is for tests.
std::int64_t available_memory(const std::string& root = "");

}  // namespace aisc
