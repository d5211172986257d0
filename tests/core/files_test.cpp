// Files are written whole or not at all; and a little of what the machine says of itself.
#include "common/core/system/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "common/core/system/machine.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

class Files : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return folder_.path(name); }
  std::ptrdiff_t entries() const { return folder_.entries(); }

  const TemporaryFolder folder_;
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
  EXPECT_TRUE(error_says([&] { read_file(folder_.path()); },
                         {folder_.path(), "expected a regular file, found a folder"}));
}

// Without waiting for somebody at the other end.
TEST_F(Files, ThatAreNoneAreNamed) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string said = path("pipe") + ": expected a regular file, found a named pipe";
  EXPECT_TRUE(error_says([&] { read_file(path("pipe")); }, {said}));
  EXPECT_TRUE(error_says([&] { MappedFile(path("pipe")); }, {said}));
  EXPECT_TRUE(error_says([&] { ReadableFile(path("pipe")); }, {said}));
  for (const char mode : {'r', 'w', 'a'})
    EXPECT_TRUE(error_says([&] { open_stream(path("pipe"), mode); }, {said}));
  EXPECT_TRUE(error_says([] { read_file("/dev/zero"); }, {"/dev/zero", "found a device"}));
  ASSERT_EQ(mkfifo(path("x.tmp").c_str(), 0600), 0);
  EXPECT_TRUE(error_says([&] { write_file(path("x"), "x"); }, {path("x.tmp"), "a named pipe"}));
}

TEST_F(Files, AreReadFromAnyPlaceAndSayWhenTheyWereCut) {
  write_file(path("x"), "0123456789");
  const ReadableFile file(path("x"));
  EXPECT_EQ(file.size(), 10);
  char bytes[4] = {};
  file.read(3, bytes, 4);
  EXPECT_EQ(std::string(bytes, 4), "3456");
  file.read(10, bytes, 0);
  std::filesystem::resize_file(path("x"), 5);
  file.read(1, bytes, 4);
  EXPECT_TRUE(error_says([&] { file.read(3, bytes, 4); },
                         {path("x"), "its end at byte 5", "expected 10 bytes", "cut"}));
}

TEST_F(Files, ThatCannotBeWrittenAreNamedAndLeaveNothing) {
  EXPECT_TRUE(
      error_says([&] { write_file(path("no/such/x"), "x"); }, {path("no/such/x"), "No such file"}));
  std::filesystem::create_directories(path("taken/inside"));
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

TEST_F(Files, AppearOnlyWhenTheyAreCommitted) {
  {
    AtomicFile dropped(path("x"));
    dropped.write("half", 4);
  }
  EXPECT_EQ(entries(), 0);
  AtomicFile file(path("x"));
  file.write("one ", 4);
  EXPECT_FALSE(std::filesystem::exists(path("x")));
  file.write("two", 3);
  file.commit();
  EXPECT_EQ(read_file(path("x")), "one two");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, AreMappedAsTheyAre) {
  std::string content(100'001, 'a');
  content[70'000] = '\0';
  write_file(path("x"), content);
  MappedFile first(path("x"));
  const MappedFile moved = std::move(first);
  EXPECT_TRUE(first.bytes().empty());  // NOLINT: what a moved mapping promises
  EXPECT_TRUE(
      std::equal(moved.bytes().begin(), moved.bytes().end(), content.begin(), content.end()));
  write_file(path("empty"), "");
  EXPECT_TRUE(MappedFile(path("empty")).bytes().empty());
  EXPECT_TRUE(error_says([&] { MappedFile(path("no")); }, {path("no"), "No such file"}));
  EXPECT_TRUE(
      error_says([&] { MappedFile(folder_.path()); }, {"expected a regular file, found a folder"}));
  EXPECT_TRUE(error_says([&] { sync_folder(path("no")); }, {path("no"), "No such file"}));
  EXPECT_NO_THROW(sync_folder(folder_.path()));
}

// A mapped file that is replaced, as AtomicFile does, keeps its old bytes for who has it open.
TEST_F(Files, ThatAreMappedSurviveTheirReplacement) {
  write_file(path("x"), "old");
  const MappedFile file(path("x"));
  write_file(path("x"), "something new");
  EXPECT_EQ(std::string(file.bytes().begin(), file.bytes().end()), "old");
}

TEST(Checksum, IsTheSameInOnePieceOrInMany) {
  std::vector<std::uint8_t> bytes(10'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * i);
  Checksum pieces;
  for (std::size_t begin = 0; begin < bytes.size(); begin += 999)
    pieces.add(bytes.data() + begin, std::min<std::size_t>(999, bytes.size() - begin));
  EXPECT_EQ(pieces.value(), checksum(bytes));
  bytes[5000] ^= 1;
  EXPECT_NE(pieces.value(), checksum(bytes));
  EXPECT_EQ(Checksum().value(), checksum({}));
  EXPECT_EQ(checksum({}), 0x2d06800538d394c2u);  // the published value of XXH3 for no bytes
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
