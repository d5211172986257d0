// BERT's two heads: does B follow A, and which words are behind the masks.
#pragma once

#include "common/nn/embedding.h"

namespace aisc {

// The scores of both, in one tensor of 2 B + M V numbers (a layer returns one): of B samples, and
// behind them of M masked words over the V classes that are here.
struct BertScores {
  View next_sentence;  // (B, 2): column 0: B follows A; 1: it does not
  View words;          // (M, V)
};
// Throws Error where `scores` are not of so many samples, and of words in whole rows.
BertScores scores_of(View scores, std::int64_t samples, std::int64_t classes);

// How many of N picked rows (bert_rows.h), or of as many targets, are samples, one each, and how
// many of their masked words, `predictions` each.
struct PickedCounts {
  std::int64_t samples, words;
};
// Without picked rows in the pass all are samples. Throws Error where N is no multiple.
PickedCounts picked_counts(const Pass& pass, std::int64_t rows, std::int64_t predictions);

// rows (B + B K, C) -> scores (2 B + B K V): pooled W^T + b of the first B, with W (2, C) named
// "next_sentence.weight", and word table^T + bias of the others, with the table of the embedding
// and a bias of its own (V), "head.bias", 0 behind the vocabulary. (Devlin et al., arXiv
// 1810.04805, section 3.1.)
//
// With `tp`, whose ranks have parts of the vocabulary (06_tensor_parallel/vocab_parallel_table.h):
// the scores of a word are those of this rank's V/t classes. rows are the same on all ranks, the
// next-sentence head is whole on each. Backward sums the words' dx (f) while it computes the
// gradients of table and bias. It must outlive the layer.
// Steps: 2(t-1). Bytes sent per rank: 2(t-1)/t of the words' dx, in backward.
class BertHead final : public TiedHead {
 public:
  BertHead(const Rank& rank, Parameter& table, std::int64_t predictions, Communicator* tp = nullptr)
      : TiedHead(rank, table), predictions_(predictions), tp_(tp) {
    make_parameters();
  }
  BertHead(const Rank& rank, Parameter&& own_table, std::int64_t predictions,
           Communicator* tp = nullptr)
      : TiedHead(rank, std::move(own_table)), predictions_(predictions), tp_(tp) {
    make_parameters();
  }

  Tensor forward(Tensor rows, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dscores, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;
  // A table of its own is alone in a unit, as the embedding's is: the shards of both are cut alike.
  std::vector<Unit> units() override;

 private:
  std::vector<Parameter*> own() { return {&bias_, &next_weight_, &next_bias_}; }
  void make_parameters();
  void table_grad(const Pass& pass, Tensor dscores, Tensor rows, std::int64_t samples);

  std::int64_t predictions_;
  Communicator* tp_;
  Parameter bias_, next_weight_, next_bias_;
};

}  // namespace aisc
