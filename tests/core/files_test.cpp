// Files are written whole or not at all; and a little of what the machine says of itself.
#include "common/core/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "common/core/machine.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

class Files : public ::testing::Test {
 protected:
  Files() { std::filesystem::create_directories(folder_); }
  ~Files() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::ptrdiff_t entries() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("aisc_files_test." + std::to_string(getpid()));
};

TEST_F(Files, ComeBackAsTheyWereWritten) {
  std::string bytes(200'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  for (const std::string& content : {bytes, std::string(), std::string("one\n\0two", 8)}) {
    write_file(path("x"), content);
    EXPECT_EQ(read_file(path("x")), content);
    EXPECT_EQ(entries(), 1) << "no temporary file is left";
  }
}

TEST_F(Files, ThatCannotBeReadAreNamed) {
  EXPECT_TRUE(error_says([&] { read_file(path("missing")); }, {path("missing"), "No such file"}));
  EXPECT_TRUE(error_says([&] { read_file(folder_.string()); }, {folder_.string(), "directory"}));
}

TEST_F(Files, ThatCannotBeWrittenAreNamedAndLeaveNothing) {
  EXPECT_TRUE(
      error_says([&] { write_file(path("no/such/x"), "x"); }, {path("no/such/x"), "No such file"}));
  std::filesystem::create_directories(folder_ / "taken" / "inside");
  EXPECT_TRUE(error_says([&] { write_file(path("taken"), "x"); }, {path("taken"), "replaced"}));
  EXPECT_EQ(entries(), 1);
}

// The disk fills up half way through: what was there before is still there, and nothing else.
TEST_F(Files, KeepTheOldContentWhenWritingFails) {
  write_file(path("x"), "the old content");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto result =
      error_says([&] { write_file(path("x"), std::string(100'000, 'n')); }, {path("x"), "large"});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(result);
  EXPECT_EQ(read_file(path("x")), "the old content");
  EXPECT_EQ(entries(), 1);
}

// ---- machine ------------------------------------------------------------------------------------

TEST(Machine, HasCoresAndSomeSpeed) {
  EXPECT_GE(available_cores(), 1);
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
    EXPECT_GT(measure_peak_flops(dtype, 1), 1e7) << name_of(dtype);
  EXPECT_NO_THROW(bf16_dot_is_fast());
  EXPECT_NO_THROW(describe_gpus());
}

}  // namespace
}  // namespace aisc
