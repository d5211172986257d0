// What a machine and its control groups leave to a program, by files as the system writes them.
#include "common/core/system/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/core/system/files.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

class AvailableMemory : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path(path);
    std::filesystem::create_directories(file.parent_path());
    write_file(file.string(), text);
  }
  std::int64_t available() { return available_memory(folder_.path()); }

  const TemporaryFolder folder_;
};

TEST_F(AvailableMemory, IsWhatTheMachineHasLeft) {
  write("proc/meminfo", "MemTotal:       9000 kB\nMemAvailable:   7000 kB\n");
  EXPECT_EQ(available(), 7000 * 1024);
  EXPECT_GT(available_memory(), 0);
}

TEST_F(AvailableMemory, EndsAtTheLeastLimitOfTheGroups) {
  write("proc/meminfo", "MemAvailable:   7000 kB\n");
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(available(), 7000 * 1024);
  write("sys/fs/cgroup/job/memory.max", "4096000\n");
  EXPECT_EQ(available(), 4096000);
  write("sys/fs/cgroup/memory.max", "1000\n");
  EXPECT_EQ(available(), 1000);
}

TEST_F(AvailableMemory, KnowsTheFirstVersionOfGroups) {
  write("proc/meminfo", "MemAvailable:   7000 kB\n");
  write("proc/self/cgroup", "8:pids:/\n4:memory:/outside/of/the/container\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available(), 7000 * 1024);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  EXPECT_EQ(available(), 5000);
}

TEST_F(AvailableMemory, OfTheAddressSpaceIsWhatTheLimitLeaves) {
  EXPECT_FALSE(address_space_left(folder_.path()));  // a system that does not tell
  const std::string head = "Limit                     Soft Limit           Hard Limit  Units\n";
  write("proc/self/statm", "100 50 20 10 0 40 0\n");
  write("proc/self/limits",
        head + "Max address space         unlimited            unlimited   bytes\n");
  EXPECT_FALSE(address_space_left(folder_.path()));
  write("proc/self/limits",
        head + "Max address space         9000000              unlimited   bytes\n");
  EXPECT_EQ(address_space_left(folder_.path()), 9000000 - 100 * sysconf(_SC_PAGE_SIZE));
  write("proc/self/limits",
        head + "Max address space         1000                 1000        bytes\n");
  EXPECT_EQ(address_space_left(folder_.path()), 0);
}

}  // namespace
}  // namespace aisc
