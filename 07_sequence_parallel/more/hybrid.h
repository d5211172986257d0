// Both ways to share a sequence at once: tokens for heads inside a node, whose links carry an
// all-to-all, and a ring of keys across nodes, where computing hides what travels.
#pragma once

#include "07_sequence_parallel/ring_attention.h"
#include "07_sequence_parallel/ulysses.h"

namespace aisc {

// The tokens of `rank`, where each of `ranks / node` nodes has token_part(form, node, nodes, T) and
// its ranks, which follow one another, a run each of what the node has. By hand: 16 tokens, 2 nodes
// of 2 ranks, Zigzag: node 0 has 0-3 and 12-15, rank 0 of it 0-3 and rank 1 12-15; of 3 ranks a
// node rank 1 would have 2 3 and 12.
TokenPart hybrid_part(ContextForm form, int rank, int ranks, int node, std::int64_t tokens);

// In place of CausalCore, with those tokens: qkv (B, own tokens, 3 C) -> (B, own tokens, C). All
// tokens of a node are exchanged for heads (Ulysses), each rank sends its heads' keys and values
// round the ring of the ranks that have the same heads on other nodes (RingAttention), and heads
// are exchanged for tokens again. `form` is Ring or Zigzag. While generating (Pass::cache) every
// rank has all tokens: CausalCore.
// Bytes sent per rank, of n own tokens of width C in a node of U, of R nodes, forward: (U-1)/U of
// 4 n C elements inside, (R - 1) times 2 n C elements between nodes.
class Hybrid final : public Layer {
 public:
  // Collective: all ranks of `cp`, a multiple of `node`. cp must outlive it. Throws Error where
  // `node` does not divide the ranks or the heads.
  Hybrid(const Rank& rank, Communicator& cp, const std::string& name, std::int64_t heads, int node,
         ContextForm form);

  Tensor forward(Tensor qkv, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dout, Saved& saved, const Pass& pass) override;

  Communicator& inside() { return *inside_; }  // the ranks of a node
  Communicator& across() { return *across_; }  // those that have the same heads on other nodes

 private:
  Pass of_node(const Pass& pass) const;   // all tokens of the node
  Pass exchange(const Pass& pass) const;  // how many they are: what Ulysses asks for

  const ContextForm form_;
  std::unique_ptr<Communicator> inside_, across_;
  Ulysses exchanges_;
  RingAttention ring_;
  CausalCore whole_;
};

}  // namespace aisc
