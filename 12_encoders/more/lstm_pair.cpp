#include "12_encoders/more/lstm_pair.h"

#include <fmt/format.h>

#include <utility>

#include "common/core/error.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

// Both halves of each sample in turn, (2, B, n C), of (B, 2n, C), and back.
Tensor halves_first(const Tensor& x) {
  const Shape& s = x.shape();
  Tensor halves({2, s[0], s[1] / 2 * s[2]}, x.dtype(), x.device());
  ops::permute(halves, x.view().reshaped({s[0], 2, s[1] / 2 * s[2]}), {1, 0, 2, 3});
  return halves;
}

// A copy of half number i, (B, n, C).
Tensor half(const Tensor& halves, std::int64_t i, std::int64_t columns) {
  const Shape& s = halves.shape();
  Tensor x({s[1], s[2] / columns, columns}, halves.dtype(), halves.device());
  x.device().copy(x.view().reshaped({1, s[1], s[2]}), halves.rows(i, i + 1));
  return x;
}

}  // namespace

Tensor LstmPair::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  if (x.shape()[1] % 2 != 0)
    fail(fmt::format("{}: {} vectors, expected an even number: a text and what is read after it",
                     name(), x.shape()[1]));
  const std::int64_t C = x.shape()[2];
  const Tensor halves = halves_first(x);  // (2, B, n C)
  LstmState state;
  reader_.forward_from({}, half(halves, 0, C), &state, saved);
  return writer_.forward_from(state, half(halves, 1, C), nullptr, saved);
}

Tensor LstmPair::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const std::int64_t B = dy.shape()[0], n = dy.shape()[1];
  LstmState dstate, dfirst;
  // The one thing that the reader is told of the loss is the gradient of its last state.
  const Tensor written = writer_.backward_from(dy, {}, dstate, saved);         // (B, n, C)
  const Tensor read = reader_.backward_from(Tensor(), dstate, dfirst, saved);  // (B, n, C)
  const std::int64_t nC = written.count() / B;
  Tensor halves({2, B, nC}, dy.dtype(), dy.device());  // (2, B, n C)
  halves.device().copy(halves.rows(0, 1), read.view().reshaped({1, B, nC}));
  halves.device().copy(halves.rows(1, 2), written.view().reshaped({1, B, nC}));
  Tensor dx({B, 2 * n, nC / n}, dy.dtype(), dy.device());
  ops::permute(dx.view().reshaped({B, 2, nC}), halves, {1, 0, 2, 3});
  return dx;
}

std::vector<Parameter*> LstmPair::parameters() {
  return joined(reader_.parameters(), writer_.parameters());
}

}  // namespace aisc
