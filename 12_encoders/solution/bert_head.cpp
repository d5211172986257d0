#include "12_encoders/bert_head.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "06_tensor_parallel/linear_products.h"
#include "common/core/error.h"
#include "common/nn/sequence.h"

namespace aisc {

BertScores scores_of(View scores, std::int64_t samples, std::int64_t classes) {
  const std::int64_t of_words = scores.count() - 2 * samples;
  if (of_words < 0 || of_words % classes != 0)
    fail(fmt::format("bert: {} scores, expected 2 of each of {} samples and {} of each word",
                     scores.count(), samples, classes));
  return {scores.flat(0, 2 * samples).reshaped({samples, 2}),
          scores.flat(2 * samples, of_words).reshaped({of_words / classes, classes})};
}

PickedCounts picked_counts(const Pass& pass, std::int64_t rows, std::int64_t predictions) {
  if (!pass.picked) return {rows, 0};
  if (rows % (1 + predictions) != 0)
    fail(fmt::format("bert: {} rows are picked, expected of each sample one and {} of masked words",
                     rows, predictions));
  return {rows / (1 + predictions), rows / (1 + predictions) * predictions};
}

void BertHead::make_parameters() {
  const std::int64_t C = table().shape[1];
  bias_ = whole_parameter("head.bias", {table().global_shape[0]}, Init::constant(0), false);
  bias_.shape = {table().shape[0]};
  bias_.split_dim = table().split_dim;
  bias_.split_begin = table().split_begin;
  next_weight_ = whole_parameter("next_sentence.weight", {2, C}, Init::normal(0.02), true);
  next_bias_ = whole_parameter("next_sentence.bias", {2}, Init::constant(0), false);
}

std::vector<Parameter*> BertHead::parameters() { return joined(TiedHead::parameters(), own()); }

std::vector<Unit> BertHead::units() {
  std::vector<Unit> all;
  for (Parameter* table : TiedHead::parameters()) all.push_back({name_ + ".table", {table}});
  all.push_back({name_, own()});
  return all;
}

Tensor BertHead::forward(Tensor rows, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("product", "head");
  const auto [B, M] = picked_counts(pass, rows.shape()[0], predictions_);
  const std::int64_t V = table().shape[0];
  Tensor all({2 * B + M * V}, rows.dtype(), rows.device());
  const BertScores scores = scores_of(all, B, V);
  ops::matmul(scores.next_sentence, rows.rows(0, B), next_weight_.value(),
              {.transpose = ops::Transpose::Second, .bias = next_bias_.value()});
  if (M > 0)
    ops::matmul(scores.words, rows.rows(B, B + M), table().value(),
                {.transpose = ops::Transpose::Second, .bias = bias_.value()});
  saved.push(std::move(rows));
  return all;
}

Tensor BertHead::backward(Tensor dscores, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", "head");
  Tensor rows = saved.pop();                                // (B + M, C)
  Tensor drows(rows.shape(), rows.dtype(), rows.device());  // (B + M, C)
  const auto [B, M] = picked_counts(pass, rows.shape()[0], predictions_);
  const BertScores d = scores_of(dscores, B, table().shape[0]);
  Work sum;
  if (M > 0) ops::matmul(drows.rows(B, B + M), d.words, table().value());
  if (M > 0 && tp_)
    sum = tp_->all_reduce(drows.rows(B, B + M));  // comm: the words' dx, beside the products below
  ops::matmul(drows.rows(0, B), d.next_sentence, next_weight_.value());
  ops::add_bias_backward(next_bias_.grad(), d.next_sentence, next_bias_.next_grad());
  ops::matmul(next_weight_.grad(), d.next_sentence, rows.rows(0, B),
              {.transpose = ops::Transpose::First, .into = next_weight_.next_grad()});
  if (M > 0) {
    ops::add_bias_backward(bias_.grad(), d.words, bias_.next_grad());
    table_grad(pass, std::move(dscores), std::move(rows), B);
  }
  if (M > 0 && tp_) wait_for(rank_, sum, name_);
  return drows;
}

// table.grad += dwords^T words, now or when pass.deferred runs.
void BertHead::table_grad(const Pass& pass, Tensor dscores, Tensor rows, std::int64_t samples) {
  const auto product = [this, samples](const Tensor& d, const Tensor& x) {
    ops::matmul(table().grad(), scores_of(d, samples, table().shape[0]).words,
                x.rows(samples, x.shape()[0]),
                {.transpose = ops::Transpose::First, .into = table().next_grad()});
  };
  if (!pass.deferred) return product(dscores, rows);
  // A std::function is copied, so the shares that it holds sit behind a shared pointer.
  auto held = std::make_shared<std::pair<Tensor, Tensor>>(std::move(dscores), std::move(rows));
  pass.deferred->push([product, held] { product(held->first, held->second); });
}

}  // namespace aisc
