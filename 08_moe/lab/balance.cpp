// Yours to write; from 08_moe/solution/balance.cpp (stub 008cb38ee4ad).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "08_moe/balance.h"

#include <algorithm>

#include "08_moe/host_ids.h"
#include "08_moe/router_parts.h"
#include "common/core/error.h"

namespace aisc {
namespace {

Tensor probabilities_of(const Tensor& scores) {
  Tensor p = numbers_like(scores, scores.shape()[-1]);
  ops::softmax(as_rows(p), as_rows(scores));
  return p;
}

// log sum exp of each row: (B T).
Tensor log_sum_exps(const Tensor& scores) {
  const std::int64_t rows = scores.shape().rows();
  const std::vector<std::int32_t> none(index(rows), -1);
  Tensor lse({rows}, scores.dtype(), scores.device());
  const Tensor losses({rows}, scores.dtype(), scores.device(), Purpose::Workspace);
  ops::cross_entropy(losses, lse, as_rows(scores), ids_on(scores.device(), none),
                     scores.shape()[-1]);
  return lse;
}

// (B, E) of numbers that depend on the sample alone -> (B T, E) on the device, in x's type.
Tensor to_all_tokens(const std::vector<double>& numbers, const Tensor& x) {
  const std::int64_t B = x.shape()[0], T = x.shape()[1], E = x.shape()[2];
  CpuDevice host;
  Tensor all({B * T, E}, x.dtype(), x.device(), Purpose::Workspace);
  const Tensor table({B, E}, x.dtype(), x.device(), Purpose::Workspace);
  std::vector<std::int32_t> samples(index(B * T));
  for (std::int64_t i = 0; i < B * T; ++i) samples[index(i)] = static_cast<std::int32_t>(i / T);
  const Tensor here({B, E}, x.dtype(), host);
  dispatch(x.dtype(), [&](auto type) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      here.data<decltype(type)>()[i] = static_cast<decltype(type)>(numbers[i]);
  });
  x.device().copy(table, here);
  ops::embedding(all, table, ids_on(x.device(), samples));
  return all;
}

// Of probabilities (B, T, E) the sum over the tokens of each sample: (B E), on the host.
std::vector<double> sums_of_samples(const Tensor& p) {
  const std::int64_t B = p.shape()[0], T = p.shape()[1], E = p.shape()[2];
  const Tensor sums({B, E}, p.dtype(), p.device(), Purpose::Workspace);
  for (std::int64_t b = 0; b < B; ++b)
    ops::add_bias_backward(sums.view().flat(b * E, E), as_rows(p).rows(b * T, (b + 1) * T),
                           ops::Into::Overwrite);
  CpuDevice host;
  const Tensor here({B, E}, p.dtype(), host);
  p.device().copy(here, sums);
  std::vector<double> all(index(B * E));
  dispatch(p.dtype(), [&](auto type) {
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<double>(here.data<decltype(type)>()[i]);
  });
  return all;
}

}  // namespace

std::vector<double> first_choices(std::span<const std::int32_t> experts, std::int64_t samples,
                                  std::int64_t chosen, std::int64_t expert_count) {
  std::vector<double> shares(index(samples * expert_count));
  const std::int64_t T = std::ssize(experts) / std::max<std::int64_t>(samples * chosen, 1);
  for (std::int64_t i = 0; i < samples * T; ++i)
    if (const std::int32_t e = experts[index(i * chosen)]; e >= 0)
      shares[index(i / T * expert_count + e)] += 1.0 / static_cast<double>(T);
  return shares;
}

double RouterLosses::sum(const Tensor& scores, const std::vector<double>& first) const {
  const auto E = static_cast<double>(scores.shape()[-1]);
  double sum = 0;
  if (balance > 0) {
    const std::vector<double> p = sums_of_samples(probabilities_of(scores));  // T P, (B E)
    // LAB 08.4: balance
    // p[i] is T P of a sample and an expert, first[i] the share of its tokens that choose it.
    throw NotImplemented("lab 08.4: balance", __FILE__, __LINE__);
    // END LAB 08.4
  }
  if (z_loss > 0) sum += z_loss * ops::sum_of_squares(log_sum_exps(scores));
  return sum;
}

Tensor RouterLosses::gradient(const Tensor& scores, const std::vector<double>& first,
                              double factor) const {
  const Tensor p = probabilities_of(scores);
  Tensor d = Tensor::zeros(scores.shape(), scores.dtype(), scores.device());  // (B, T, E)
  if (balance > 0) {
    std::vector<double> slopes(first.size());  // of each sample's probabilities of an expert
    // LAB 08.4: balance
    // The sum is linear in the probabilities of every token. What is each one's factor? f is a
    // count, and moves with nothing.
    throw NotImplemented("lab 08.4: balance", __FILE__, __LINE__);
    // END LAB 08.4
    ops::softmax_backward(as_rows(d), to_all_tokens(slopes, scores), as_rows(p));
  }
  if (z_loss > 0) {
    const Tensor lse = log_sum_exps(scores);
    ops::scale(lse, lse, 2 * z_loss * factor);
    ops::scale_rows(as_rows(d), as_rows(p), lse, ops::Into::Accumulate);
  }
  return d;
}

}  // namespace aisc
