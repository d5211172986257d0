// Safetensors files: what is written is read, byte for byte and type by type; lies are found.
#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

std::vector<std::uint8_t> file_bytes(const std::string& header, std::size_t data,
                                     std::int64_t length = -1) {
  const std::uint64_t n = length < 0 ? header.size() : static_cast<std::uint64_t>(length);
  std::vector<std::uint8_t> bytes(8 + header.size() + data);
  std::memcpy(bytes.data(), &n, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data; ++i)
    bytes[8 + header.size() + i] = static_cast<std::uint8_t>(i);
  return bytes;
}

// The error of a header with `data` bytes behind it contains these words.
::testing::AssertionResult refused(const std::string& header, std::size_t data,
                                   const std::vector<std::string>& fragments) {
  const auto bytes = file_bytes(header, data);
  return error_says([&] { Safetensors(bytes, "x.safetensors"); }, fragments);
}

// The whole file as the format's description has it, written down by hand.
TEST(Safetensors, IsWrittenAsDescribed) {
  const TemporaryFolder folder;
  CpuDevice device;
  const std::string path = folder.path("x.safetensors");
  SafetensorsWriter writer(path, {{"b", DType::F32, {2}}, {"a", DType::U8, {1, 3}}},
                           {{"format", "pt"}});
  EXPECT_FALSE(std::filesystem::exists(path)) << "not before it is whole";
  const std::vector<std::uint8_t> bytes{7, 8, 9};
  writer.append(from_doubles({1, -2}, {2}, DType::F32, device));
  writer.append(ConstView(bytes.data(), {1, 3}, DType::U8, device));
  writer.commit();
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"U8","shape":[1,3],"data_offsets":[8,11]}})";
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  const std::string file = read_file(path);
  EXPECT_EQ(file.substr(8, padded), header + std::string(padded - header.size(), ' '));
  EXPECT_EQ(static_cast<unsigned char>(file[0]), padded);
  EXPECT_EQ(file.substr(8 + padded), std::string("\0\0\x80\x3f\0\0\0\xc0\x07\x08\x09", 11));
}

TEST(Safetensors, EveryTypeComesBack) {
  const TemporaryFolder folder;
  CpuDevice device;
  const std::string path = folder.path("x.safetensors");
  std::vector<Tensor> tensors;
  std::vector<SafetensorsSpec> specs;
  for (const DType dtype : {DType::U8, DType::F64, DType::F32, DType::BF16, DType::F16}) {
    if (dtype == DType::U8) {  // three bytes first: what follows is not aligned
      tensors.push_back(Tensor::zeros({3}, dtype, device));
    } else {
      tensors.push_back(random_tensor({5, 2, 3}, dtype, device, name_of(dtype)));
    }
    specs.push_back({name_of(dtype), dtype, tensors.back().shape()});
  }
  specs.push_back({"ids", DType::I32, {4}});
  tensors.push_back(ids_tensor({1, -2, 3, 1 << 30}, device));
  specs.push_back({"empty", DType::F32, {0, 3}});
  tensors.push_back(Tensor({0, 3}, DType::F32, device));
  SafetensorsWriter writer(path, specs);
  for (const Tensor& tensor : tensors) writer.append(tensor);
  writer.commit();

  const Safetensors file(path);
  EXPECT_EQ(file.entries().size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    Tensor back(specs[i].shape, specs[i].dtype, device);
    file.read(specs[i].name, back);
    EXPECT_TRUE(same_bits(back, tensors[i])) << specs[i].name;
  }
  // Between floating types values are converted, as ops::cast rounds.
  for (const DType from : {DType::F64, DType::BF16, DType::F16})
    for (const DType to : {DType::F64, DType::F32, DType::BF16}) {
      Tensor back({5, 2, 3}, to, device);
      file.read(name_of(from), back);
      const auto source =
          std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.dtype == from; });
      const Tensor& original = tensors[static_cast<std::size_t>(source - specs.begin())];
      EXPECT_TRUE(same_bits(back, from_doubles(to_doubles(original), {5, 2, 3}, to, device)))
          << name_of(from) << " to " << name_of(to);
    }
}

TEST(Safetensors, SaysWhichTensorItLacksOrHasOtherwise) {
  const auto bytes = file_bytes(R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                                R"("m":{"dtype":"BOOL","shape":[4],"data_offsets":[8,12]}})",
                                12);
  const Safetensors file(bytes, "x");
  CpuDevice device;
  Tensor wrong({2}, DType::F32, device), mask({4}, DType::F32, device);
  Tensor ids({2, 1}, DType::I32, device);
  EXPECT_TRUE(error_says([&] { file.read("b", wrong); }, {"x", "no tensor \"b\"", "\"a\""}));
  EXPECT_TRUE(error_says([&] { file.read("a", wrong); }, {"\"a\"", "(2, 1)", "expected (2)"}));
  EXPECT_TRUE(error_says([&] { file.read("m", mask); }, {"\"m\"", "BOOL", "F32"}));
  EXPECT_TRUE(error_says([&] { file.read("a", ids); }, {"\"a\"", "F32", "I32"}));
  EXPECT_EQ(file.find("b"), nullptr);
  EXPECT_EQ(file.entries()[1].dtype, "BOOL");
  EXPECT_TRUE(file.equal("a", "a"));
  EXPECT_FALSE(file.equal("a", "m"));
}

TEST(Safetensors, RefusesWhatIsNoSuchFile) {
  const std::vector<std::uint8_t> nothing, seven(7);
  EXPECT_TRUE(error_says([&] { Safetensors(nothing, "x"); }, {"x", "found 0 bytes"}));
  EXPECT_TRUE(error_says([&] { Safetensors(seven, "x"); }, {"found 7 bytes", "8"}));
  EXPECT_TRUE(error_says([&] { Safetensors("/nowhere/x"); }, {"/nowhere/x", "No such file"}));
  // Lengths that lie: nothing of that size is ever allocated.
  const auto huge = file_bytes("{}", 0, 99'000'000), absurd = file_bytes("{}", 0, 1ll << 62);
  EXPECT_TRUE(error_says([&] { Safetensors(huge, "x"); }, {"byte 0", "99000000", "found 2"}));
  EXPECT_TRUE(error_says([&] { Safetensors(absurd, "x"); }, {"byte 0", "at most 100000000"}));
  EXPECT_TRUE(refused("[1]", 0, {"byte 8", "array", "expected an object"}));
  EXPECT_TRUE(refused("{\"a\": 1", 0, {"byte 1", "not JSON"}));
  EXPECT_TRUE(refused("{\"a\xff\": 1}", 0, {"not JSON"}));
  EXPECT_TRUE(refused(std::string(1000, '['), 0, {"nested deeper than 64"}));
  EXPECT_TRUE(refused(std::string(500'000, '['), 0, {"nested deeper than 64"}));
}

TEST(Safetensors, RefusesEntriesThatContradictThemselves) {
  EXPECT_TRUE(refused(R"({"a":1})", 0, {"\"a\"", "dtype"}));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F9","shape":[1],"data_offsets":[0,4]}})", 4, {"F9"}));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, {"-1"}));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, {"1.5"}));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, {"[0]"}));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                      {"[0, 4]", "8 bytes", "F32 (2)"}));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, {"[4, 0]"}));
  // 2^62 * 4 and 2^32 * 2^32 do not fit into 64 bits: the product must not come out as 0.
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})",
                      0, {"2^63"}));
  EXPECT_TRUE(refused(
      R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, {"2^63"}));
  EXPECT_TRUE(refused(R"({"__metadata__":{"a":1}})", 0, {"__metadata__", "text"}));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                      1, {"\"a\"", "twice"}));
}

TEST(Safetensors, RefusesHolesOverlapsAndRemains) {
  const std::string a = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_TRUE(refused(a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", 4,
                      {"\"b\"", "without holes"}));
  EXPECT_TRUE(refused(a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
                      {"\"b\"", "without holes"}));
  EXPECT_TRUE(refused(a + "}", 3, {"found 1 more bytes"}));
  EXPECT_TRUE(refused(a + "}", 1, {"\"a\"", "end at 2", "which has 1"}));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"U8","shape":[1],)"
                      R"("data_offsets":[18446744073709551614,18446744073709551615]}})",
                      1, {"\"a\"", "which has 1"}));
}

TEST(SafetensorsWriter, HoldsItsCallerToWhatWasAnnounced) {
  const TemporaryFolder folder;
  CpuDevice device;
  const std::string path = folder.path("x");
  const Tensor two = Tensor::zeros({2}, DType::F32, device);
  const Tensor three = Tensor::zeros({3}, DType::F32, device);
  {
    SafetensorsWriter writer(path, {{"a", DType::F32, {2}}});
    EXPECT_TRUE(error_says([&] { writer.append(three); }, {"\"a\"", "(2)", "found F32 (3)"}));
  }
  {
    SafetensorsWriter writer(path, {{"a", DType::F32, {2}}, {"b", DType::F32, {2}}});
    writer.append(two);
    EXPECT_TRUE(error_says([&] { writer.commit(); }, {"1 tensors of 2"}));
    writer.append(two);
    EXPECT_TRUE(error_says([&] { writer.append(two); }, {"one tensor more"}));
  }
  EXPECT_TRUE(error_says(
      [&] {
        SafetensorsWriter(path, {{"a", DType::F32, {2}}, {"a", DType::F32, {2}}});
      },
      {"two tensors", "\"a\""}));
  EXPECT_EQ(folder.entries(), 0) << "nothing half-written is left";
}

}  // namespace
}  // namespace aisc
