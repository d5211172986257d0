// Parts that several writers write make the file that one writes; parts are read without the rest.
#include "formats/safetensors_parts.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/message_of.h"
#include "tests/support/some_gpu.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

const std::vector<SafetensorsSpec> kSpecs{{"bytes", DType::U8, {3}},
                                          {"w", DType::BF16, {7, 5}},
                                          {"none", DType::F32, {0}},
                                          {"m", DType::F64, {11}}};

// As long as it lives no file can grow beyond so many bytes: a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

class WrittenParts : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::string path_ = folder_.path("x.safetensors");
  CpuDevice device_;
};

TEST_F(WrittenParts, OfManyWritersAreTheFileOfOne) {
  const std::vector<std::uint8_t> some{7, 8, 9};
  const ConstView bytes(some.data(), {3}, DType::U8, device_);
  const Tensor w = random_tensor({7, 5}, DType::BF16, device_, "w");
  const Tensor m = random_tensor({11}, DType::F64, device_, "m"), none({0}, DType::F32, device_);
  SafetensorsWriter one(folder_.path("one"), kSpecs, {{"format", "pt"}});
  for (const ConstView& x : {bytes, ConstView(w), ConstView(none), ConstView(m)}) one.append(x);
  one.commit();

  SafetensorsParts::create(path_, kSpecs, {{"format", "pt"}});
  std::vector<std::thread> writers;
  for (std::int64_t i = 0; i < 3; ++i)
    writers.emplace_back([&, i] {
      SafetensorsParts parts(path_);
      parts.write("bytes", i, bytes.flat(i, 1));
      parts.write("none", 0, none);
      for (std::int64_t begin = 4 * i; begin < 35; begin += 12)  // pieces of 4, dealt round
        parts.write("w", begin, w.view().flat(begin, std::min<std::int64_t>(4, 35 - begin)));
      parts.write("m", 4 * i, m.view().flat(4 * i, i == 2 ? 3 : 4));
      parts.close();
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(read_file(path_), read_file(folder_.path("one")));
}

TEST_F(WrittenParts, LeaveZerosWhereNobodyWrites) {
  SafetensorsParts::create(path_, kSpecs);
  {
    SafetensorsParts parts(path_);
    parts.write("m", 10, from_doubles({3}, {1}, DType::F64, device_));
  }
  const Safetensors file(path_);
  const Tensor m({11}, DType::F64, device_);
  file.read("m", m);
  EXPECT_EQ(to_doubles(m), (std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3}));
}

TEST_F(WrittenParts, AreReadWithoutTheRest) {
  SafetensorsParts::create(path_, kSpecs);
  const Tensor w = random_tensor({7, 5}, DType::BF16, device_, "w");
  SafetensorsParts(path_).write("w", 0, w);
  const Safetensors file(path_);
  for (const DType dtype : {DType::BF16, DType::F32, DType::F64})
    for (const auto& [begin, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 35}, {0, 0}, {4, 9}, {34, 1}, {35, 0}}) {
      const Tensor part({count}, dtype, device_);
      file.read_part("w", {7, 5}, begin, part);
      EXPECT_EQ(to_doubles(part), to_doubles(w.view().flat(begin, count)))
          << begin << ", " << name_of(dtype);
    }
  const Tensor nine({9}, DType::BF16, device_), ids({9}, DType::I32, device_);
  EXPECT_TRUE(error_says([&] { file.read_part("w", {35}, 0, nine); },
                         {path_, "\"w\"", "(7, 5)", "expected (35)"}));
  for (const std::int64_t begin : {std::int64_t{-1}, std::int64_t{27}, std::int64_t{1} << 62})
    EXPECT_TRUE(error_says(
        [&] {
          file.read_part("w", {7, 5}, begin, nine);
        },
        {path_, "\"w\": elements [" + std::to_string(begin), "of 35"}));
  EXPECT_TRUE(error_says([&] { file.read_part("w", {7, 5}, 0, ids); }, {"BF16", "expected I32"}));
  EXPECT_TRUE(error_says([&] { file.read_part("v", {7, 5}, 0, nine); }, {"no tensor \"v\""}));
}

TEST_F(WrittenParts, AreRefusedWhereTheyDoNotFit) {
  SafetensorsParts::create(path_, kSpecs);
  const std::string before = read_file(path_);
  SafetensorsParts parts(path_);
  const Tensor five = Tensor::zeros({5}, DType::BF16, device_);
  const Tensor ones = from_doubles({1, 1, 1, 1, 1}, {5}, DType::F32, device_);
  EXPECT_TRUE(
      error_says([&] { parts.write("v", 0, five); }, {path_, "no tensor \"v\" among its 4"}));
  EXPECT_TRUE(error_says([&] { parts.write("w", 0, ones); },
                         {path_, "\"w\"", "found F32", "expected BF16"}));
  for (const std::int64_t begin : {std::int64_t{-1}, std::int64_t{31}, std::int64_t{1} << 62})
    EXPECT_TRUE(error_says([&] { parts.write("w", begin, five); },
                           {path_, "\"w\"", "[" + std::to_string(begin), "some of its 35"}));
  EXPECT_TRUE(error_says([&] { parts.write("none", 0, ones); }, {"\"none\"", "some of its 0"}));
  SomeGpu gpu;
  EXPECT_TRUE(error_says(
      [&] {
        parts.write("w", 0, {five.view().raw(), {5}, DType::BF16, gpu});
      },
      {path_, "\"w\"", "on cuda:0", "on the host"}));
  parts.close();
  parts.close();
  EXPECT_TRUE(error_says([&] { parts.write("w", 0, five); }, {path_, "after close()"}));
  EXPECT_EQ(read_file(path_), before) << "nothing was written";
}

TEST_F(WrittenParts, OfAFileThatCannotBeMadeLeaveNothing) {
  const std::string in_no_folder = folder_.path("nowhere/x");
  EXPECT_TRUE(error_says([&] { SafetensorsParts::create(in_no_folder, kSpecs); },
                         {in_no_folder, "cannot be made", "No such file"}));
  EXPECT_TRUE(error_says(
      [&] {
        SafetensorsParts::create(path_, {{"a", DType::F32, {2}}, {"a", DType::F32, {2}}});
      },
      {path_, "two tensors", "\"a\""}));
  const auto message = [&](const std::function<void()>& call) {
    const FullDisk full(4096);
    return message_of(call);
  };
  EXPECT_EQ(message([&] {
              SafetensorsParts::create(path_, {{"a", DType::F64, {600}}});
            }),
            path_ + ": cannot be written: File too large");
  EXPECT_EQ(folder_.entries(), 0);
  std::filesystem::create_directory(path_);
  EXPECT_TRUE(error_says([&] { SafetensorsParts::create(path_, kSpecs); },
                         {path_, "cannot be made", "File exists"}));
  EXPECT_TRUE(std::filesystem::is_directory(path_)) << "what was there stays";
}

TEST_F(WrittenParts, OnAFullDiskAreAnError) {
  SafetensorsParts::create(path_, {{"a", DType::F64, {1200}}});
  const Tensor zeros = Tensor::zeros({1200}, DType::F64, device_);
  SafetensorsParts parts(path_);
  const auto message = [&] {
    const FullDisk full(4096);
    return message_of([&] { parts.write("a", 0, zeros); });
  };
  EXPECT_EQ(message(), path_ + ": cannot be written: File too large");
}

TEST_F(WrittenParts, NeedAFileThatIsOne) {
  EXPECT_TRUE(error_says([&] { SafetensorsParts parts(path_); }, {path_, "No such file"}));
  write_file(path_, "no header");
  EXPECT_TRUE(error_says([&] { SafetensorsParts parts(path_); }, {path_, "byte 0"}));
}

}  // namespace
}  // namespace aisc
