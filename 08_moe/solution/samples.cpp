#include "08_moe/samples.h"

#include <algorithm>

#include "08_moe/host_ids.h"

namespace aisc {
namespace {

void wait_for_rows(const Rank& rank, Work work, const std::string& name) {
  const auto span = rank.trace.span("communication", name);
  work.wait();
}

// x (n, C) with rows of zeros behind it, up to `rows`.
Tensor padded(Tensor x, std::int64_t rows) {
  if (x.shape()[0] == rows) return x;
  Tensor more = Tensor::zeros({rows, x.shape()[1]}, x.dtype(), x.device());
  if (x.count() > 0) x.device().copy(more.rows(0, x.shape()[0]), x);
  return more;
}

}  // namespace

Samples::Own Samples::own_of(const Shape& x, const Pass& pass) const {
  const bool generates = pass.cache != nullptr;
  const std::int64_t t = tensor_ranks(), c = generates ? 1 : context_ranks();
  Own own;
  own.samples = x[0];
  own.divided = t == 1 || (divided_ && !generates);
  const std::int64_t tokens_here = x[1] * (own.divided ? t : 1);  // of this context rank
  own.tokens = c == 1 ? tokens_here : pass.sequence;
  const std::int64_t me = tp_ ? tp_->rank() : 0, B = own.samples;
  const Range of_all = share_of(B * tokens_here, me, t);
  own.rows = own.divided ? Range{0, of_all.count()} : of_all;
  own.alone = t * c == 1;
  if (own.alone) return own;
  std::vector<std::vector<std::int32_t>> places;  // by context rank and tensor rank
  for (std::int64_t i = 0; i < c; ++i) {
    const TokenPart part = c == 1 ? TokenPart{own.tokens}
                                  : part_(static_cast<int>(i), static_cast<int>(c), own.tokens);
    for (std::int64_t j = 0; j < t; ++j) {
      std::vector<std::int32_t>& of_rank = places.emplace_back();
      const Range rows = share_of(B * part.count, j, t);
      for (std::int64_t row = rows.begin; row < rows.end; ++row)
        of_rank.push_back(static_cast<std::int32_t>(row / part.count * own.tokens +
                                                    part.runs.position(row % part.count)));
      own.most = std::max(own.most, rows.count());
    }
  }
  for (std::vector<std::int32_t>& of_rank : places) {
    of_rank.resize(index(own.most), static_cast<std::int32_t>(B * own.tokens));
    own.places.insert(own.places.end(), of_rank.begin(), of_rank.end());
  }
  own.at = ((c == 1 ? 0 : cp_->rank()) * t + me) * own.most;
  return own;
}

Tensor Samples::whole(const Rank& rank, Tensor own_rows, const Own& own,
                      const std::string& name) const {
  const std::int64_t E = own_rows.shape()[1], B = own.samples, T = own.tokens;
  if (own.alone) return std::move(own_rows).reshaped({B, T, E});
  Tensor x = padded(std::move(own_rows), own.most);
  const std::int64_t of_tensor_ranks = tensor_ranks() * own.most;
  if (tensor_ranks() > 1) {
    Tensor all({of_tensor_ranks, E}, x.dtype(), x.device());
    wait_for_rows(rank, tp_->all_gather(x, all), name);  // comm: logits of own rows
    x = std::move(all);
  }
  if (std::ssize(own.places) > of_tensor_ranks) {
    Tensor all({std::ssize(own.places), E}, x.dtype(), x.device());
    wait_for_rows(rank, cp_->all_gather(x, all), name);  // comm: logits of own tokens
    x = std::move(all);
  }
  Tensor whole({B * T, E}, x.dtype(), x.device());
  ops::embedding_backward(whole, x, ids_on(x.device(), own.places), ops::Into::Overwrite,
                          {0, B * T + 1});
  return std::move(whole).reshaped({B, T, E});
}

Tensor Samples::own_rows(const Tensor& whole, const Own& own) const {
  const std::int64_t E = whole.shape()[-1], n = own.rows.count();
  if (own.alone) return whole.share().reshaped({n, E});
  Tensor rows({n, E}, whole.dtype(), whole.device());
  const auto places = std::span(own.places).subspan(index(own.at), index(n));
  if (n > 0) ops::embedding(rows, as_rows(whole), ids_on(whole.device(), places));
  return rows;
}

Tensor Samples::with_zeros(const Tensor& own_rows, const Own& own) const {
  const std::int64_t E = own_rows.shape()[-1], B = own.samples, T = own.tokens;
  if (own.alone) return own_rows.share().reshaped({B, T, E});
  Tensor whole({B * T, E}, own_rows.dtype(), own_rows.device());
  const auto places = std::span(own.places).subspan(index(own.at), index(own.rows.count()));
  ops::embedding_backward(whole, own_rows, ids_on(whole.device(), places), ops::Into::Overwrite);
  return std::move(whole).reshaped({B, T, E});
}

Tensor Samples::all_of(const Rank& rank, Tensor own_rows, std::int64_t all_rows, const Own& own,
                       const std::string& name) const {
  if (own.divided) return own_rows;
  const std::int64_t C = own_rows.shape()[1], t = tensor_ranks();
  const std::int64_t most = (all_rows + t - 1) / t;
  const Tensor x = padded(std::move(own_rows), most);
  Tensor all({t * most, C}, x.dtype(), x.device());
  wait_for_rows(rank, tp_->all_gather(x, all), name);  // comm: y of own rows, or dx
  if (t * most == all_rows) return all;
  Tensor rows({all_rows, C}, x.dtype(), x.device());
  for (std::int64_t j = 0; j < t; ++j) {
    const Range share = share_of(all_rows, j, t);
    if (share.count() > 0)
      x.device().copy(rows.rows(share.begin, share.end),
                      all.rows(j * most, j * most + share.count()));
  }
  return rows;
}

}  // namespace aisc
