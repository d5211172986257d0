#include "13_vision/image_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "13_vision/drawn_digits.h"
#include "13_vision/of_type.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/core/rng.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {

ImageSet::ImageSet(const std::string& name, IdxArray images, IdxArray labels)
    : images_(std::move(images)), labels_(std::move(labels)) {
  if (images_.sizes.size() != 3)
    fail(fmt::format("{}: images have {} dimensions, expected 3: images, rows, columns", name,
                     images_.sizes.size()));
  if (labels_.sizes.size() != 1)
    fail(fmt::format("{}: labels have {} dimensions, expected 1", name, labels_.sizes.size()));
  if (labels_.sizes[0] != images_.sizes[0])
    fail(fmt::format("{}: {} labels, expected one for each of {} images", name, labels_.sizes[0],
                     images_.sizes[0]));
  if (images_.count() < 1)
    fail(fmt::format("{}: {} images of {} x {}, expected 1 or more pixels", name, count(), height(),
                     width()));
}

int ImageSet::classes() const {
  return 1 + *std::max_element(labels_.elements.begin(), labels_.elements.end());
}

ImageBatch ImageSet::batch(std::span<const std::int64_t> which, DType dtype, Device& device) const {
  const auto N = static_cast<std::int64_t>(which.size()), pixels = images_.count(1);
  ImageBatch batch{Tensor({N, 1, height(), width()}, dtype, device),
                   Tensor({N}, DType::I32, device)};
  of_type(dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int64_t i = which[index(n)];
      if (i < 0 || i >= count())
        fail(fmt::format("image {} of a batch is {}, expected 0 to {}", n, i, count() - 1));
      const std::uint8_t* const from = images_.elements.data() + i * pixels;
      T* const to = batch.images.data<T>() + n * pixels;
      for (std::int64_t p = 0; p < pixels; ++p) to[p] = static_cast<T>(from[p]) / T{255};
      batch.labels.data<std::int32_t>()[n] = label(i);
    }
  });
  return batch;
}

ImageSet read_image_set(const std::string& images_path, const std::string& labels_path) {
  return {images_path + " and " + labels_path, read_idx(images_path), read_idx(labels_path)};
}

ImageSet draw_image_set(std::uint64_t seed, std::int64_t begin, std::int64_t count) {
  IdxArray images{{count, kDigitSide, kDigitSide},
                  std::vector<std::uint8_t>(index(count * kDigitPixels))};
  IdxArray labels{{count}, std::vector<std::uint8_t>(index(count))};
  std::uint8_t *const pixels = images.elements.data(), *const digits = labels.elements.data();
  cpu::parallel_rows(count, kDigitPixels, [=](std::int64_t i) {
    const auto n = static_cast<std::uint64_t>(begin + i);
    digits[i] = static_cast<std::uint8_t>(
        draw_digit(seed, n, {pixels + i * kDigitPixels, index(kDigitPixels)}));
  });
  return {"drawn digits", std::move(images), std::move(labels)};
}

std::vector<std::int64_t> drawn_places(std::uint64_t seed, std::int64_t step, std::int64_t begin,
                                       std::int64_t count, std::int64_t all) {
  const Philox random(seed, "images of a batch", static_cast<std::uint64_t>(step));
  std::vector<std::int64_t> places;
  for (std::int64_t i = begin; i < begin + count; ++i)
    places.push_back(static_cast<std::int64_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(all))));
  return places;
}

}  // namespace aisc
