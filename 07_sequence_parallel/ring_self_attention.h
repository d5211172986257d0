// Attention of a sequence that lies on several ranks and stores its scores: keys go round, and then
// values do (Li et al., "Sequence parallelism: long sequence training from system perspective",
// arXiv 2105.13120, section 3.2).
#pragma once

#include "06_tensor_parallel/head_dropout.h"
#include "07_sequence_parallel/key_ring.h"
#include "common/nn/attention.h"

namespace aisc {

// Dropout of the probabilities of a run of queries: x (B, 1, H t T), of this rank's H heads and t
// of T queries. Element (b, h, q, k) draws by the index b * 2^32 + (h T + q) T + k, with heads
// counted over all ranks of `tp` and q in the whole sequence: what StoredAttention drops.
class QueryDropout final : public HeadDropout {
 public:
  QueryDropout(const Rank& rank, Communicator& tp, std::string name, double rate,
               std::uint64_t seed, std::int64_t heads, Masks masks = Masks::Stored)
      : HeadDropout(rank, tp, std::move(name), rate, seed, masks), heads_(heads) {}

 protected:
  std::vector<Run> runs(const Tensor& x, const Pass& pass) const override;

 private:
  std::int64_t heads_;
};

// Ring self-attention, in place of StoredAttention where rank i of `cp` has token_part(
// ContextForm::Rsa, i, N, T): qkv (B, t, 3 C), t = T/N, C = H D -> (B, t, C).
//
// Forward: while keys go round, a rank multiplies its queries by those that are here. Then it has
// whole rows of scores, (B, H, t, T), and their softmax and dropout are those of one rank. While
// values go round, the probabilities are multiplied by them, and summed in F32 (F64 for F64).
// Backward: values go round with the sums of their gradients, keys with the sums of theirs; the
// authors' code has an all-reduce of all tokens for each. Every score is computed, seen or not, so
// that all ranks have the same to do. While generating (Pass::cache) every rank has all tokens:
// CausalCore.
//
// Saved are, in bytes of 16 bits with s = T, h = C, a = H, what StoredAttention saves over N:
// (6 s b h + 5 a s^2 b) / N, without dropout (6 s b h + 2 a s^2 b) / N. As workspace there are once
// more a s^2 b / N numbers.
// Exchanges: 2 (N - 1) forward, of n C elements each with n = B t own tokens; backward as many, and
// 2 N in F32. Bytes sent per rank, in 16 bits: 4 (N - 1) n C forward, (12 N - 4) n C backward.
class RingSelfAttention final : public Layer {
 public:
  // `dropout` takes the probabilities as QueryDropout does.
  RingSelfAttention(const Rank& rank, Communicator& cp, const std::string& name, std::int64_t heads,
                    std::unique_ptr<Dropout> dropout, Sees sees = Sees::Earlier)
      : Layer(rank, name),
        cp_(cp),
        ring_(rank, cp, name, ContextForm::Rsa),
        heads_(heads),
        dropout_(std::move(dropout)),
        sees_(sees),
        whole_(attention_core(rank, name, heads, sees)) {}

  // Throws Error naming the layer, before anything is allocated, where N does not divide
  // pass.sequence.
  Tensor forward(Tensor qkv, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dout, Saved& saved, const Pass& pass) override;

 private:
  // product(j, x) with what each rank j has in the place of x (B H, t, D), its own first; meanwhile
  // the next is on its way.
  using Product = std::function<void(int rank, ConstView x)>;
  void go_round(ConstView x, const Pass& pass, const Product& product) const;

  Communicator& cp_;
  KeyRing ring_;
  std::int64_t heads_;
  std::unique_ptr<Dropout> dropout_;
  Sees sees_;
  std::unique_ptr<Layer> whole_;
};

}  // namespace aisc
