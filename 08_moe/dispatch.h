// What goes where: a rank's tokens sorted by the experts that they are sent to, and what comes
// back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/core/tensor.h"

namespace aisc {

// Of a rank's n tokens with k choices each: the M of these that are sent, sorted by expert and, of
// one expert, by token.
struct Dispatch {
  Tensor rows;                       // (M) I32: the token
  Tensor choices;                    // (M) I32: its place in (n k)
  std::vector<std::int64_t> counts;  // (E): how many each expert gets

  std::int64_t count() const { return rows.count(); }
};

// experts (n, k), -1 for none; kept (n k): 0 for dropped. A counting sort: linear in n k.
Dispatch dispatch_of(Device& device, std::span<const std::int32_t> experts,
                     std::span<const std::uint8_t> kept, std::int64_t chosen,
                     std::int64_t expert_count);
// Where there are no numbers: so many choices, spread evenly.
Dispatch even_dispatch(Device& device, std::int64_t count, std::int64_t expert_count);

// x (n, C) in the order of the dispatch: (M, C). Its backward is what gives combined() its result.
Tensor dispatched(ConstView x, const Dispatch& plan);
// dx (n, C) from (M, C): of each token the sum of its rows; 0 for a token that nobody takes.
Tensor dispatched_backward(ConstView dy, const Dispatch& plan, std::int64_t tokens);

// y (n, C): of each token the sum of its experts' answers (M, C) times their gates, which are some
// of gates (n k). A token that all experts dropped gets 0, and what the residual connection brings
// past the layer is all of it.
Tensor combined(ConstView answers, ConstView gates, const Dispatch& plan, std::int64_t tokens);

struct CombineGrads {
  Tensor danswers;  // (M, C)
  Tensor dgates;    // (n k): 0 for what was dropped
};
CombineGrads combined_backward(ConstView dy, ConstView answers, ConstView gates,
                               const Dispatch& plan);

}  // namespace aisc
