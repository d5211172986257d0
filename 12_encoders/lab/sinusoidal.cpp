// Yours to write; from 12_encoders/solution/sinusoidal.cpp (stub d036794be80d).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "12_encoders/sinusoidal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

constexpr double kSlowest = 10000;  // how many times slower the last hand turns than the first

void require_pairs(std::int64_t width) {
  if (width < 2 || width % 2 != 0)
    fail(fmt::format("positions: a width of {}, expected pairs of columns, one or more", width));
}

Tensor encodings_on(Device& device, std::int64_t positions, std::int64_t width, DType dtype) {
  const std::vector<double> encodings = sinusoidal_encodings(positions, width);
  const Shape shape{positions, width};
  CpuDevice host;
  const Tensor rounded(shape, dtype, host);
  ops::cast(rounded, ConstView(encodings.data(), shape, DType::F64, host));
  Tensor x(shape, dtype, device, Purpose::Parameters);
  device.copy(x, rounded);
  return x;
}

}  // namespace

std::vector<double> sinusoidal_encodings(std::int64_t positions, std::int64_t width) {
  require_pairs(width);
  if (positions < 0) fail(fmt::format("positions: {} of them, expected 0 or more", positions));
  std::vector<double> encodings(index(positions * width));
  // LAB 12.1: positions
  // encodings[pos * width + column]: a sine in each even column, its cosine in the odd one behind
  // it. Columns 2i and 2i + 1 have the same angle, pos / kSlowest^(2i / width). The exponent is
  // a fraction: what is 2 / 4 of two integers?
  throw NotImplemented("lab 12.1: positions", __FILE__, __LINE__);
  // END LAB 12.1
  return encodings;
}

std::vector<double> encoding_at_distance(std::span<const double> encoding, std::int64_t distance) {
  const std::int64_t width = std::ssize(encoding);
  require_pairs(width);
  std::vector<double> turned(encoding.size());
  // LAB 12.1: positions
  // Of each pair (sin a, cos a) make (sin(a + b), cos(a + b)), b the angle of `distance`, by the
  // addition theorems: what is `a` itself good for?
  throw NotImplemented("lab 12.1: positions", __FILE__, __LINE__);
  // END LAB 12.1
  return turned;
}

Sinusoidal::Sinusoidal(const Rank& rank, std::string name, std::int64_t positions,
                       std::int64_t width, DType dtype)
    : Layer(rank, std::move(name)),
      encodings_(encodings_on(rank.device, positions, width, dtype)) {}

Tensor Sinusoidal::times_root(Tensor x) const {
  Tensor y = output_like(x);  // (B, T, C)
  ops::scale(y, x, std::sqrt(static_cast<double>(encodings_.shape()[1])));
  return y;
}

Tensor Sinusoidal::forward(Tensor x, Saved& /*saved*/, const Pass& pass) const {
  const auto span = rank_.trace.span("embedding", name_);
  const std::int64_t B = x.shape()[0], T = x.shape()[1], positions = encodings_.shape()[0];
  // Here: a GPU says it late.
  for (const std::int64_t t : {T - 1, std::min(pass.tokens.split, T) - 1})
    if (t >= 0 && pass.tokens.position(t) >= positions)
      fail(fmt::format("positions: {}: a token at {} of {}", name_, pass.tokens.position(t),
                       positions));
  Tensor ids({B, T}, DType::I32, x.device());
  ops::token_positions(ids, pass.tokens);
  Tensor y = times_root(std::move(x));
  ops::embedding(as_rows(y), encodings_, ids.view().reshaped({B * T}), ops::Into::Accumulate);
  return y;
}

// The encodings do not depend on x: their slope is 0, and the root is a factor.
Tensor Sinusoidal::backward(Tensor dy, Saved& /*saved*/, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("embedding", name_);
  return times_root(std::move(dy));
}

}  // namespace aisc
