// What the system lets a process have of files.
#pragma once

#include <cstdint>
#include <string>

namespace aisc {

// Throws Error "`who` opens up to ... files" unless this process, and those that it starts, may
// have so many open at once. Raises its own limit, as far as it may.
void require_open_files(std::int64_t count, const std::string& who);

// Throws Error "`who` writes files of ..." unless this process may write a file of so many bytes.
void require_file_bytes(std::int64_t bytes, const std::string& who);

}  // namespace aisc
