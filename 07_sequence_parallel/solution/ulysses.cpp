#include "07_sequence_parallel/ulysses.h"

#include <fmt/format.h>

#include "06_tensor_parallel/linear_products.h"
#include "common/core/error.h"

namespace aisc {

Ulysses::Ulysses(const Rank& rank, Communicator& cp, const std::string& name, std::int64_t heads,
                 Sees sees)
    : Layer(rank, name),
      cp_(cp),
      some_(attention_core(rank, name, std::max<std::int64_t>(1, heads / cp.size()), sees)),
      whole_(attention_core(rank, name, heads, sees)) {
  if (heads % cp.size() != 0)
    fail(fmt::format("{}: {} heads over {} ranks of {}: expected a multiple of {}", name, heads,
                     cp.size(), cp.name(), cp.size()));
}

std::vector<std::int64_t> Ulysses::tokens_of_all(const Pass& pass) const {
  std::vector<std::int64_t> tokens;
  for (int rank = 0; rank < cp_.size(); ++rank)
    tokens.push_back(token_part(ContextForm::Ulysses, rank, cp_.size(), pass.sequence).count);
  return tokens;
}

// (B, own tokens, C) -> (B, T, C/N). On the way (N, B, own tokens, C/N), a chunk for each rank, and
// from each rank r (B, its tokens, C/N).
Tensor Ulysses::to_heads(const Tensor& x, const Pass& pass) const {
  const std::int64_t B = x.shape()[0], own = x.shape()[1], C = x.shape()[2] / cp_.size();
  const std::vector<std::int64_t> tokens = tokens_of_all(pass);
  Tensor chunks({cp_.size(), B * own, C}, x.dtype(), x.device());
  ops::permute(chunks, x.view().reshaped({B * own, cp_.size(), C}), {1, 0, 2});
  Tensor arrived({pass.sequence, B * C}, x.dtype(), x.device()),
      all({B, pass.sequence, C}, x.dtype(), x.device());
  Work work;
  // LAB 07.6: all tokens of some heads
  // > cp_.all_to_all_v(in, send_counts, out, recv_counts) sends chunks packed by rank, of so many
  // > elements each; `work` is waited for below. How many go to each rank, and how many come from
  // > rank r?
  const std::vector<std::int64_t> sent(tokens.size(), B * own * C);
  std::vector<std::int64_t> received;
  for (const std::int64_t count : tokens) received.push_back(B * count * C);
  work = cp_.all_to_all_v(chunks, sent, arrived, received);  // comm: x, but for 1/N of it
  // END LAB 07.6
  wait_for(rank_, work, name_);
  std::int64_t from = 0, first = 0;  // of rank r: its chunk, its tokens' place
  for (const std::int64_t count : tokens) {
    for (std::int64_t b = 0; b < B; ++b, from += count * C)
      x.device().copy(all.view().flat((b * pass.sequence + first) * C, count * C),
                      arrived.view().flat(from, count * C));
    first += count;
  }
  return all;
}

// (B, T, C/N) -> (B, own tokens, C).
Tensor Ulysses::to_tokens(const Tensor& x, const Pass& pass) const {
  const std::int64_t B = x.shape()[0], C = x.shape()[2];
  const std::vector<std::int64_t> tokens = tokens_of_all(pass);
  const std::int64_t own = tokens[static_cast<std::size_t>(cp_.rank())];
  Tensor chunks({pass.sequence, B * C}, x.dtype(), x.device()),
      arrived({cp_.size(), B * own, C}, x.dtype(), x.device()),
      mine({B, own, C * cp_.size()}, x.dtype(), x.device());
  std::int64_t to = 0, first = 0;
  std::vector<std::int64_t> sent;
  for (const std::int64_t count : tokens) {
    for (std::int64_t b = 0; b < B; ++b, to += count * C)
      x.device().copy(chunks.view().flat(to, count * C),
                      x.view().flat((b * pass.sequence + first) * C, count * C));
    first += count;
    sent.push_back(B * count * C);
  }
  const std::vector<std::int64_t> received(tokens.size(), B * own * C);
  Work work = cp_.all_to_all_v(chunks, sent, arrived, received);  // comm: x, but for 1/N of it
  wait_for(rank_, work, name_);
  ops::permute(mine.view().reshaped({B * own, cp_.size(), C}), arrived, {1, 0, 2});
  return mine;
}

Tensor Ulysses::forward(Tensor qkv, Saved& saved, const Pass& pass) const {
  if (pass.cache) return whole_->forward(std::move(qkv), saved, pass);
  return to_tokens(some_->forward(to_heads(qkv, pass), saved, pass), pass);
}

Tensor Ulysses::backward(Tensor dout, Saved& saved, const Pass& pass) {
  // Separate objects: a core has no parameters, and what it saved is in `saved`.
  return to_tokens(some_->backward(to_heads(dout, pass), saved, pass), pass);
}

}  // namespace aisc
