#include "03_data_parallel/average.h"

#include <fmt/format.h>

#include <cmath>

#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "common/core/system/files.h"
#include "common/ops/ops.h"

namespace aisc {

void broadcast_weights(Communicator& ranks, View weights) {
  ranks.broadcast(weights, 0).wait();  // comm: all weights, once a run
}

void require_equal_weights(Communicator& ranks, ConstView weights) {
  CpuDevice host;
  Tensor copy(weights.shape(), weights.dtype(), host);
  host.copy(copy, weights);
  const auto mine =
      static_cast<std::int64_t>(checksum({static_cast<const std::uint8_t*>(copy.view().raw()),
                                          static_cast<std::size_t>(copy.bytes())}));
  const auto all = all_numbers(ranks, {&mine, 1});  // comm: 8 bytes of each rank
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail(
          fmt::format("rank {} has other weights than rank 0: nobody broadcast them, or a rank "
                      "updated its own differently",
                      rank));
}

void average_gradients(Communicator& ranks, View gradients) {
  // LAB 03.1: average_gradients
  // > Two lines: one that communicates, one that divides.
  ranks.all_reduce(gradients).wait();  // comm: the gradients of all ranks, their sum for all
  ops::scale(gradients, gradients, 1.0 / ranks.size());
  // END LAB 03.1
}

void average_by_tokens(Communicator& ranks, View gradients, std::int64_t tokens) {
  if (tokens < 0) fail(fmt::format("average_by_tokens: {} tokens, expected 0 or more", tokens));
  // LAB 03.2: average_by_tokens
  // > First all ranks have to know how many tokens there are. A rank without tokens has no
  // > gradient: 0 * NaN is NaN.
  const std::int64_t total = sum_of_all(ranks, tokens);  // comm: 8 bytes, the tokens of all ranks
  if (total == 0) fail("average_by_tokens: no rank has a token");
  if (tokens == 0)
    gradients.device().zero(gradients);
  else
    ops::scale(gradients, gradients, static_cast<double>(tokens) / static_cast<double>(total));
  ranks.all_reduce(gradients).wait();  // comm: each rank's part of the mean
  // END LAB 03.2
}

double root_mean_square(Communicator& ranks, double x) {
  return std::sqrt(sum_of_all(ranks, x * x / ranks.size()));  // comm: 8 bytes
}

}  // namespace aisc
