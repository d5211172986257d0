// IDX files, digits that are drawn, and batches of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "13_vision/drawn_digits.h"
#include "13_vision/idx_file.h"
#include "13_vision/image_set.h"
#include "common/core/system/files.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

std::string bytes_of(const std::vector<int>& bytes) { return {bytes.begin(), bytes.end()}; }

TEST(IdxFile, ByHand) {
  const TemporaryFolder folder;
  const std::string path = folder.path("images");
  write_idx(path, {{2, 1, 3}, {1, 2, 3, 250, 251, 252}});
  EXPECT_EQ(read_file(path),
            bytes_of({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 250, 251, 252}));
  const IdxArray found = read_idx(path);
  EXPECT_EQ(found.sizes, (std::vector<std::int64_t>{2, 1, 3}));
  EXPECT_EQ(found.elements, (std::vector<std::uint8_t>{1, 2, 3, 250, 251, 252}));
  EXPECT_EQ(found.count(1), 3);
}

TEST(IdxFile, OfAnySizesComesBack) {
  const TemporaryFolder folder;
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{0},
                                                 {drawn("labels", 1, 700)},
                                                 {3, 0, 5},
                                                 {258, 2},
                                                 {2, 3, 4, 5}}) {
    IdxArray array{sizes, {}};
    for (std::int64_t i = 0; i < array.count(); ++i)
      array.elements.push_back(static_cast<std::uint8_t>(i * 7));
    write_idx(folder.path("x"), array);
    const IdxArray found = read_idx(folder.path("x"));
    EXPECT_EQ(found.sizes, sizes);
    EXPECT_EQ(found.elements, array.elements);
  }
}

TEST(IdxFile, SaysWhatIsWrongWithIt) {
  const TemporaryFolder folder;
  const std::string path = folder.path("x");
  const auto message = [&](const std::vector<int>& bytes) {
    write_file(path, bytes_of(bytes));
    const std::string said = message_of([&] { read_idx(path); }), head = path + ": IDX: ";
    return said.starts_with(head) ? said.substr(head.size()) : "another head: " + said;
  };
  EXPECT_EQ(message({}), "0 bytes, expected 4 or more: 0 0 type dimensions");
  EXPECT_EQ(message({0, 0, 8}), "3 bytes, expected 4 or more: 0 0 type dimensions");
  EXPECT_EQ(message({0x1f, 0x8b, 8}),
            "the file is compressed by gzip, expected an unpacked one: gunzip it");
  EXPECT_EQ(message({80, 53, 8, 1}), "it begins with bytes 80 53, expected 0 0");
  EXPECT_EQ(message({0, 0, 13, 1, 0, 0, 0, 0}),
            "elements of type 0x0d, 32-bit floating numbers, expected 0x08, unsigned bytes");
  EXPECT_EQ(message({0, 0, 7, 1, 0, 0, 0, 0}),
            "elements of type 0x07, no type of IDX, expected 0x08, unsigned bytes");
  EXPECT_EQ(message({0, 0, 8, 0}), "0 dimensions, expected 1 to 4");
  EXPECT_EQ(message({0, 0, 8, 5}), "5 dimensions, expected 1 to 4");
  EXPECT_EQ(message({0, 0, 8, 2, 0, 0, 0, 1, 0, 0}),
            "it ends at byte 10 of the 2 sizes, expected 12 bytes before elements");
  EXPECT_EQ(message({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3}),
            "3 elements behind the sizes, expected 2 x 2 = 4");
  EXPECT_EQ(message({0, 0, 8, 1, 0, 0, 0, 1, 1, 2}), "2 elements behind the sizes, expected 1 = 1");
  // 2^128 elements: as 64-bit numbers their count would be 0.
  EXPECT_EQ(message({0, 0, 8, 4, 128, 0, 0, 0, 128, 0, 0, 0, 128, 0, 0, 0, 128, 0, 0, 0}),
            "0 elements behind the sizes, expected 2147483648 x 2147483648 x 2147483648 x "
            "2147483648 = 21267647932558653966460912964485513216");
  EXPECT_TRUE(error_says([&] { read_idx(folder.path("nothing")); }, {"nothing", "No such file"}));
}

TEST(IdxFile, WritesNothingThatIsNoIdx) {
  const TemporaryFolder folder;
  const std::string path = folder.path("x");
  const auto message = [&](const IdxArray& array) {
    return message_of([&] { write_idx(path, array); }).substr(path.size());
  };
  EXPECT_EQ(message({{}, {}}), ": IDX: 0 dimensions to write, expected 1 to 4");
  EXPECT_EQ(message({{1, 1, 1, 1, 1}, {1}}), ": IDX: 5 dimensions to write, expected 1 to 4");
  EXPECT_EQ(message({{-1}, {}}), ": IDX: a size of -1 to write, expected 0 to 4294967295");
  EXPECT_EQ(message({{2, 2}, {1}}), ": IDX: 1 elements to write, expected 4 of these sizes");
  EXPECT_EQ(folder.entries(), 0);
}

TEST(ImageSet, SaysWhatDoesNotBelongTogether) {
  const IdxArray images{{2, 1, 2}, {0, 51, 102, 255}}, labels{{2}, {3, 0}};
  const auto message = [](const IdxArray& a, const IdxArray& b) {
    return message_of([&] { ImageSet("set", a, b); });
  };
  EXPECT_EQ(message(images, labels), "");
  EXPECT_EQ(message(labels, labels),
            "set: images have 1 dimensions, expected 3: images, rows, columns");
  EXPECT_EQ(message(images, images), "set: labels have 3 dimensions, expected 1");
  EXPECT_EQ(message(images, {{1}, {3}}), "set: 1 labels, expected one for each of 2 images");
  EXPECT_EQ(message({{2, 0, 2}, {}}, labels), "set: 2 images of 0 x 2, expected 1 or more pixels");
  const ImageSet set("set", images, labels);
  EXPECT_EQ(set.classes(), 4);
  CpuDevice device;
  const std::vector<std::int64_t> turned{1, 0, 1};
  const ImageBatch batch = set.batch(turned, DType::F64, device);
  EXPECT_EQ(batch.images.shape(), (Shape{3, 1, 1, 2}));
  EXPECT_TRUE(numbers_are("pixels", batch.images, {.4, 1, 0, .2, .4, 1}));
  EXPECT_EQ(to_doubles(batch.labels), (std::vector<double>{0, 3, 0}));
  const std::vector<std::int64_t> outside{0, 2};
  EXPECT_EQ(message_of([&] { set.batch(outside, DType::F32, device); }),
            "image 1 of a batch is 2, expected 0 to 1");
}

TEST(DrawnDigits, AreAFunctionOfSeedAndIndex) {
  const ImageSet set = draw_image_set(3, 10, 40), later = draw_image_set(3, 30, 20);
  const ImageSet other = draw_image_set(4, 10, 40);
  EXPECT_NE(set.images().elements, other.images().elements);
  EXPECT_TRUE(std::equal(later.images().elements.begin(), later.images().elements.end(),
                         set.images().elements.begin() + 20 * kDigitPixels));
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(kDigitPixels));
  EXPECT_EQ(draw_digit(3, 30, pixels), set.label(20));
  EXPECT_TRUE(
      std::equal(pixels.begin(), pixels.end(), set.images().elements.begin() + 20 * kDigitPixels));
  EXPECT_EQ(message_of([] { draw_digit(1, 1, {}); }), "draw_digit: 0 pixels, expected 784");
}

TEST(DrawnDigits, HaveAllTenClassesAndAreAllDifferent) {
  const ImageSet set = draw_image_set(1, 0, 1000);
  std::vector<int> counts(10);
  std::set<std::vector<std::uint8_t>> different;
  for (std::int64_t i = 0; i < set.count(); ++i) {
    ++counts[static_cast<std::size_t>(set.label(i))];
    const auto begin = set.images().elements.begin() + i * kDigitPixels;
    different.emplace(begin, begin + kDigitPixels);
  }
  EXPECT_EQ(different.size(), 1000u);
  for (const int count : counts) EXPECT_GT(count, 60);  // of 100: 4 standard deviations
}

// What the nearest of ten mean images says is right for less than 4 of 5: the task is not trivial.
TEST(DrawnDigits, AreMoreThanTenPatterns) {
  const ImageSet set = draw_image_set(1, 0, 3000);
  const auto pixel = [&](std::int64_t i, std::int64_t p) {
    return static_cast<double>(
        set.images().elements[static_cast<std::size_t>(i * kDigitPixels + p)]);
  };
  std::vector<std::vector<double>> means(
      10, std::vector<double>(static_cast<std::size_t>(kDigitPixels)));
  std::vector<double> counts(10);
  for (std::int64_t i = 0; i < 2000; ++i) {
    const auto digit = static_cast<std::size_t>(set.label(i));
    ++counts[digit];
    for (std::int64_t p = 0; p < kDigitPixels; ++p)
      means[digit][static_cast<std::size_t>(p)] += pixel(i, p);
  }
  int right = 0;
  for (std::int64_t i = 2000; i < 3000; ++i) {
    std::vector<double> away(10);
    for (std::size_t digit = 0; digit < 10; ++digit)
      for (std::int64_t p = 0; p < kDigitPixels; ++p) {
        const double mean = means[digit][static_cast<std::size_t>(p)] / counts[digit];
        away[digit] += (pixel(i, p) - mean) * (pixel(i, p) - mean);
      }
    right += std::min_element(away.begin(), away.end()) - away.begin() == set.label(i);
  }
  EXPECT_LT(right, 800);
  EXPECT_GT(right, 300) << "they are digits nevertheless";
}

TEST(DrawnPlaces, AreThoseOfOneRankForAnyShare) {
  const auto whole = drawn_places(5, 3, 0, 12, 1000);
  const auto first = drawn_places(5, 3, 0, 5, 1000), rest = drawn_places(5, 3, 5, 7, 1000);
  std::vector<std::int64_t> both = first;
  both.insert(both.end(), rest.begin(), rest.end());
  EXPECT_EQ(both, whole);
  EXPECT_NE(drawn_places(5, 4, 0, 12, 1000), whole);
  for (const std::int64_t place : whole) EXPECT_TRUE(place >= 0 && place < 1000);
}

}  // namespace
}  // namespace aisc
