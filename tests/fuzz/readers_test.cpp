// Every seed of the fuzzer, and everything it ever found, read once more: tests/fuzz/seeds and
// findings hold a folder for each reader.
#include <gtest/gtest.h>

#include <filesystem>

#include "common/core/system/files.h"
#include "tests/fuzz/targets.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

class FuzzedReader : public ::testing::TestWithParam<FuzzTarget> {};

TEST_P(FuzzedReader, AnswersEverySeedAndEveryFinding) {
  int files = 0;
  for (const char* kind : {"seeds", "findings"}) {
    const fs::path folder = fs::path(AISC_SOURCE_DIR) / "tests/fuzz" / kind / GetParam().name;
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      SCOPED_TRACE(entry.path().string());
      const std::string bytes = read_file(entry.path().string());
      GetParam().run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
      ++files;
    }
  }
  EXPECT_GT(files, 0) << "a reader without seeds";
}

// Seeds cut short anywhere, and with each byte of their beginning changed.
TEST_P(FuzzedReader, AnswersSeedsThatAreCutOrChanged) {
  const fs::path folder = fs::path(AISC_SOURCE_DIR) / "tests/fuzz/seeds" / GetParam().name;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string seed = read_file(entry.path().string()).substr(0, 20'000);
    const auto run = [](const std::string& bytes) {
      GetParam().run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    };
    const std::size_t stride = 1 + seed.size() / 300;
    for (std::size_t i = 0; i < seed.size(); i += stride) {
      run(seed.substr(0, i));
      std::string changed = seed;
      changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
      run(changed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Readers, FuzzedReader,
                         ::testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace aisc
