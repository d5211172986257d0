#include "12_encoders/bert_embedding.h"

namespace aisc {

Segments::Segments(const Rank& rank, std::int64_t width, Communicator* token_ranks)
    : Layer(rank, "segments"),
      token_ranks_(token_ranks),
      segments_(whole_parameter("segments.weight", {kCount, width}, Init::normal(0.02), true)) {
  if (token_ranks) segments_.sync = Sync::DataAndTensor;
}

// Of x's rows, (N): those of a rank that has a part of the tokens are a run of all.
Tensor Segments::ids_of(const Tensor& x, const Pass& pass) const {
  const std::int64_t N = x.shape().rows();
  if (!pass.segments) return Tensor::zeros({N}, DType::I32, x.device());
  Tensor ids({N}, DType::I32, x.device());
  x.device().copy(ids, pass.segments.flat(token_ranks_ ? token_ranks_->rank() * N : 0, N));
  return ids;
}

Tensor Segments::forward(Tensor x, Saved& /*saved*/, const Pass& pass) const {
  const auto span = rank_.trace.span("embedding", segments_.name);
  if (x.owners() > 1) x = x.clone();
  ops::embedding(as_rows(x), segments_.value(), ids_of(x, pass), ops::Into::Accumulate);
  return x;
}

// What is added passes its gradient on as it is.
Tensor Segments::backward(Tensor dy, Saved& /*saved*/, const Pass& pass) {
  const auto span = rank_.trace.span("embedding", segments_.name);
  ops::embedding_backward(segments_.grad(), as_rows(dy), ids_of(dy, pass), segments_.next_grad());
  return dy;
}

}  // namespace aisc
