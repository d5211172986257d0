// How much memory a program may still take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace aisc {

// Bytes that this machine can give away without taking them from other programs, or the limit of
// one of the control groups that this process is in (a container, a batch job), if that is less.
// `root` is where the system's own files are looked for; another one is for tests.
std::int64_t available_memory(const std::string& root = "");

// Bytes of address space that this process may still take where that is limited (`ulimit -v`, some
// batch systems), whatever the machine has. Threads reserve more of it than they use: each its
// stack.
std::optional<std::int64_t> address_space_left(const std::string& root = "");

// The system's unit of memory, in which it maps files and takes advice: 4 KiB on x86, on ARM also
// 16 or 64.
std::size_t page_bytes();

}  // namespace aisc
