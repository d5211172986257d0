#include "07_sequence_parallel/more/hybrid.h"

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

const Communicator& checked(const Communicator& cp, const std::string& name, int node) {
  if (node < 1 || cp.size() % node != 0)
    fail(fmt::format("{}: {} ranks of {} in nodes of {}: expected a multiple of {}", name,
                     cp.size(), cp.name(), node, node));
  return cp;
}

}  // namespace

TokenPart hybrid_part(ContextForm form, int rank, int ranks, int node, std::int64_t tokens) {
  const TokenPart whole = token_part(form, rank / node, ranks / node, tokens);
  const Range own = share_of(whole.count, rank % node, node);
  if (whole.count < node)
    fail(fmt::format("{} tokens of a node for {} ranks: expected {} or more", whole.count, node,
                     node));
  TokenPart part{.count = own.count(), .runs = {.first = whole.runs.position(own.begin)}};
  // The seam of the node's two runs, if it lies inside.
  if (own.begin < whole.runs.split && whole.runs.split < own.end) {
    part.runs.split = whole.runs.split - own.begin;
    part.runs.second = whole.runs.second;
  }
  return part;
}

Hybrid::Hybrid(const Rank& rank, Communicator& cp, const std::string& name, std::int64_t heads,
               int node, ContextForm form)
    : Layer(rank, name),
      form_(form),
      inside_(cp.split(checked(cp, name, node).rank() / node, cp.rank(), name + ".inside")),
      across_(cp.split(cp.rank() % node, cp.rank(), name + ".across")),
      exchanges_(rank, *inside_, name, heads),
      ring_(rank, *across_, name, heads / node, form),
      whole_(rank, name, heads) {}

Pass Hybrid::of_node(const Pass& pass) const {
  Pass all = pass;
  all.tokens = token_part(form_, across_->rank(), across_->size(), pass.sequence).runs;
  return all;
}

Pass Hybrid::exchange(const Pass& pass) const {
  Pass counted = pass;
  counted.sequence = token_part(form_, across_->rank(), across_->size(), pass.sequence).count;
  return counted;
}

// (B, own, 3 C) -> (B, the node's tokens, 3 C/U) -> (B, the node's tokens, C/U) -> (B, own, C).
Tensor Hybrid::forward(Tensor qkv, Saved& saved, const Pass& pass) const {
  if (pass.cache) return whole_.forward(std::move(qkv), saved, pass);
  const Pass counted = exchange(pass);
  Tensor some = exchanges_.to_heads(qkv, counted);  // comm: qkv, but for 1/U of it, inside the node
  qkv = {};
  some = ring_.forward(std::move(some), saved, of_node(pass));
  return exchanges_.to_tokens(some, counted);  // comm: the output, but for 1/U of it, inside
}

Tensor Hybrid::backward(Tensor dout, Saved& saved, const Pass& pass) {
  const Pass counted = exchange(pass);
  Tensor some = exchanges_.to_heads(dout, counted);  // comm: dout, but for 1/U of it, inside
  some = ring_.backward(std::move(some), saved, of_node(pass));
  return exchanges_.to_tokens(some, counted);  // comm: dqkv, but for 1/U of it, inside the node
}

}  // namespace aisc
