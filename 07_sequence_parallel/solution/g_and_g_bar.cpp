#include "07_sequence_parallel/g_and_g_bar.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {
namespace {

// (B, T t, C) of x (B, T, C).
Tensor of_all_tokens(const Tensor& x, const Communicator& tp) {
  return Tensor(x.shape().with(1, x.shape()[1] * tp.size()), x.dtype(), x.device());
}

// (B, T/t, C) of x (B, T, C).
Tensor of_own_tokens(const Tensor& x, const Communicator& tp) {
  const std::int64_t tokens = x.shape()[1];
  if (tokens % tp.size() != 0)
    fail(fmt::format("{} tokens over {} ranks of {}: expected a multiple of {}", tokens, tp.size(),
                     tp.name(), tp.size()));
  return Tensor(x.shape().with(1, tokens / tp.size()), x.dtype(), x.device());
}

}  // namespace

Passing begin_through(SequenceConjugate which, Direction direction, Communicator& tp,
                      const Tensor& x) {
  // LAB 07.1: g and g-bar
  // > of_all_tokens(x, tp) and of_own_tokens(x, tp) are memory for a result. tp.all_gather(x, y)
  // > and tp.reduce_scatter(x, y) begin; what they return is waited for later, elsewhere. A Tensor is
  // > moved, not copied: return {std::move(y), std::move(work)}. In which two of the four cases are
  // > there more tokens behind it than before?
  const bool gathers = (which == SequenceConjugate::G) == (direction == Direction::Forward);
  Tensor y = gathers ? of_all_tokens(x, tp) : of_own_tokens(x, tp);
  Work work = gathers ? tp.all_gather(x, y)       // comm: x, which nobody else has
                      : tp.reduce_scatter(x, y);  // comm: x; each rank has a share of every token
  return {std::move(y), std::move(work)};
  // END LAB 07.1
}

}  // namespace aisc
