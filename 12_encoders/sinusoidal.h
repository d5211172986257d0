// Where a token stands, said by sines: attention itself does not know. What an encoder computes of
// a token depends on the others as a set, and a shuffled text gives the same vectors, shuffled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/nn/layer.h"

namespace aisc {

// The encodings of positions 0 .. positions - 1, (positions, width) row by row (Vaswani et al.,
// "Attention is all you need", arXiv 1706.03762, section 3.5):
//
//   PE(pos, 2i)     = sin(pos / 10000^(2i / width))
//   PE(pos, 2i + 1) = cos(pos / 10000^(2i / width))
//
// Columns 2i and 2i + 1 are a point on a circle, and each pair of columns is a hand of a clock: the
// first turns by one radian a token, the last nearly ten thousand times more slowly.
// Throws Error: positions below 0, a width that is not even and positive.
std::vector<double> sinusoidal_encodings(std::int64_t positions, std::int64_t width);

// PE(pos + distance) of PE(pos), whatever pos is: each pair of columns turns by distance /
// 10000^(2i / width). So one matrix for all positions leads from a token to the one that stands
// `distance` behind it, and a head can learn to look there; that is why the paper has sines.
// `distance` may be negative. Throws Error for a width that is not even and positive.
std::vector<double> encoding_at_distance(std::span<const double> encoding, std::int64_t distance);

// y = sqrt(C) x + PE(t), x and y (B, T, C), t a token's place in the sequence (Pass::tokens); in
// place where nobody else holds x. What stands for GptParts::positions: it has no parameters, and
// texts may be longer than any that it was trained on. The root is the paper's (section 3.4): the
// table that embeds is the head's, too, whose rows have a length of about 1, and PE(t) has one of
// sqrt(C / 2).
class Sinusoidal final : public Layer {
 public:
  // For up to `positions` tokens. Throws Error as sinusoidal_encodings().
  Sinusoidal(const Rank& rank, std::string name, std::int64_t positions, std::int64_t width,
             DType dtype);

  // Throws Error for a token behind the last position.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;

 private:
  Tensor times_root(Tensor x) const;

  Tensor encodings_;  // (positions, C)
};

}  // namespace aisc
