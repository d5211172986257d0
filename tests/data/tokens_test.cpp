// Tokens in memory and in llm.c's files, intact and damaged.
#include "common/data/tokens.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "common/data/batches.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

std::vector<std::uint16_t> counting_tokens(std::size_t count) {
  std::vector<std::uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{500});
  return tokens;
}

// A token file's bytes, with three numbers of its header to lie with. At an even address.
std::vector<std::uint8_t> file_bytes(std::int32_t magic, std::int32_t version, std::int32_t count,
                                     std::size_t tokens) {
  std::vector<std::uint8_t> bytes(1024 + 2 * tokens);
  const std::int32_t header[] = {magic, version, count};
  std::memcpy(bytes.data(), header, sizeof header);
  return bytes;
}

std::vector<std::int32_t> copied(const TokenView& tokens) {
  std::vector<std::int32_t> to(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, tokens.size(), to.data());
  return to;
}

TEST(TokenView, LooksAtBytesAndPairsAlike) {
  const std::vector<std::uint8_t> bytes{7, 0, 255, 3};
  const std::vector<std::uint16_t> pairs{7, 0, 255, 3};
  for (const TokenView& view : {TokenView(bytes), TokenView(pairs)}) {
    EXPECT_EQ(view.size(), 4);
    EXPECT_EQ(view[2], 255);
    EXPECT_EQ(view.summary().largest, 255);
    EXPECT_EQ(copied(view.part(1, 3)), (std::vector<std::int32_t>{0, 255}));
    EXPECT_EQ(view.part(4, 4).size(), 0);
    EXPECT_TRUE(error_says([&] { view.part(3, 5); }, {"[3, 5) of 4"}));
    EXPECT_TRUE(error_says([&] { view.part(3, 2); }, {"[3, 2)"}));
  }
  EXPECT_EQ(TokenView(bytes).summary().hash, TokenView(pairs).summary().hash) << "the same tokens";
  EXPECT_EQ(TokenView().summary().largest, -1);
}

TEST(TokenView, HashTellsContentsOrderAndNumberApart) {
  std::vector<std::uint16_t> a = counting_tokens(100'000), b = a;
  EXPECT_EQ(TokenView(a).summary().hash, TokenView(b).summary().hash);
  std::swap(b[40'000], b[40'001]);
  EXPECT_NE(TokenView(a).summary().hash, TokenView(b).summary().hash);
  b = a;
  b.pop_back();
  EXPECT_NE(TokenView(a).summary().hash, TokenView(b).summary().hash);
  const std::vector<std::uint16_t> one{0}, two{0, 0};
  EXPECT_NE(TokenView(one).summary().hash, TokenView(two).summary().hash);
}

// The bytes, one by one: what llm.c reads and writes.
TEST(TokenFile, IsWrittenAsLlmcDoes) {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> tokens{1, 50256, 258};
  write_token_file(folder.path("x.bin"), tokens);
  const std::string bytes = read_file(folder.path("x.bin"));
  ASSERT_EQ(bytes.size(), 1024u + 6u);
  EXPECT_EQ(bytes.substr(0, 12), std::string("\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0", 12));
  EXPECT_EQ(bytes.substr(12, 1012), std::string(1012, '\0'));
  EXPECT_EQ(bytes.substr(1024), std::string("\x01\0\x50\xc4\x02\x01", 6));
}

TEST(TokenFile, IsReadBackAndFeedsBatches) {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> tokens = counting_tokens(60'000);
  write_token_file(folder.path("x.bin"), tokens);
  TokenFile moved(folder.path("x.bin"));
  const TokenFile file = std::move(moved);
  EXPECT_EQ(copied(file.tokens()), copied(tokens));
  EXPECT_EQ(file.tokens().summary().hash, TokenView(tokens).summary().hash);
  CpuDevice device;
  const Batch a = BatchSampler(file.tokens(), 9, 1).batch(device, 0, 5);
  const Batch b = BatchSampler(tokens, 9, 1).batch(device, 0, 5);
  EXPECT_TRUE(same_bits(a.tokens, b.tokens));
  EXPECT_TRUE(same_bits(a.targets, b.targets));
  EXPECT_EQ(a.targets.data<std::int32_t>()[0], a.tokens.data<std::int32_t>()[1]);
}

TEST(TokenFile, MayBeEmpty) {
  const TemporaryFolder folder;
  write_token_file(folder.path("x.bin"), TokenView());
  EXPECT_EQ(TokenFile(folder.path("x.bin")).tokens().size(), 0);
}

TEST(TokenFile, SaysWhatIsWrongWithADamagedOne) {
  const auto says = [](const std::vector<std::uint8_t>& bytes,
                       const std::vector<std::string>& fragments) {
    return error_says([&] { parse_token_file(bytes, "x"); }, fragments);
  };
  constexpr std::int32_t kMagic = 20240520;
  const auto intact = file_bytes(kMagic, 1, 5, 5);
  EXPECT_NO_THROW(parse_token_file(intact, "x"));
  EXPECT_TRUE(says({}, {"x", "found 0 bytes", "1024"}));
  EXPECT_TRUE(says(std::vector<std::uint8_t>(1023), {"found 1023 bytes"}));
  EXPECT_TRUE(says(file_bytes(20240801, 7, 5, 5), {"byte 0", "magic", "20240801", "20240520"}));
  EXPECT_TRUE(says(file_bytes(kMagic, 2, 5, 5), {"byte 4", "version", "2"}));
  EXPECT_TRUE(says(file_bytes(kMagic, 1, 6, 5), {"byte 8", "6 tokens", "12 bytes", "found 10"}));
  EXPECT_TRUE(says(file_bytes(kMagic, 1, 4, 5), {"4 tokens", "found 10"}));
  EXPECT_TRUE(says(file_bytes(kMagic, 1, -1, 5), {"-1 tokens"}));
  EXPECT_TRUE(error_says([&] { TokenFile("/nowhere/x.bin"); }, {"/nowhere/x.bin", "No such file"}));
}

}  // namespace
}  // namespace aisc
