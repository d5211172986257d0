// Images with labels: drawn, or from IDX files, and batches of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "13_vision/idx_file.h"
#include "common/core/tensor.h"

namespace aisc {

struct ImageBatch {
  Tensor images;  // (N, 1, H, W): a pixel v is v / 255
  Tensor labels;  // (N) I32
};

class ImageSet {
 public:
  // Images (N, H, W) and as many labels (N); `name` is for messages. Throws Error for others, and
  // for none.
  ImageSet(const std::string& name, IdxArray images, IdxArray labels);

  std::int64_t count() const { return images_.sizes[0]; }
  std::int64_t height() const { return images_.sizes[1]; }
  std::int64_t width() const { return images_.sizes[2]; }
  int label(std::int64_t i) const { return labels_.elements[static_cast<std::size_t>(i)]; }
  int classes() const;  // the largest label and one more
  const IdxArray& images() const { return images_; }
  const IdxArray& labels() const { return labels_; }

  // Images number which[0], which[1] ... Throws Error for a number outside [0, count()).
  ImageBatch batch(std::span<const std::int64_t> which, DType dtype, Device& device) const;

 private:
  IdxArray images_, labels_;
};

// Throws Error as read_idx() and ImageSet() do.
ImageSet read_image_set(const std::string& images_path, const std::string& labels_path);

// Digits begin .. begin + count - 1 of the endless set `seed`.
ImageSet draw_image_set(std::uint64_t seed, std::int64_t begin, std::int64_t count);

// Which `count` of `all` images a step learns from: of the batch its places begin .. begin + count
// - 1, each drawn by (seed, step, place), so that any split over ranks sees the same batch.
std::vector<std::int64_t> drawn_places(std::uint64_t seed, std::int64_t step, std::int64_t begin,
                                       std::int64_t count, std::int64_t all);

}  // namespace aisc
