#include "12_encoders/more/translator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/nn/driver.h"

namespace aisc {
namespace {

constexpr std::size_t kInFront = 3, kBehind = 2;  // layers of make_gpt beside its blocks

Tensor ids_on(Device& device, const std::vector<std::int32_t>& ids, const Shape& shape) {
  CpuDevice host;
  Tensor x(shape, DType::I32, device);
  device.copy(x, ConstView(ids.data(), shape, DType::I32, host));
  return x;
}

// x (N, n, C) at the last place of each: (N, 1, C).
Tensor last_places(const Tensor& x) {
  const std::int64_t N = x.shape()[0], n = x.shape()[1], C = x.shape()[2];
  Tensor last({N, 1, C}, x.dtype(), x.device());
  for (std::int64_t i = 0; i < N; ++i)
    x.device().copy(last.view().flat(i * C, C), x.view().flat((i * n + n - 1) * C, C));
  return last;
}

// The logarithm of the softmax over the first V of each row of logits (N, ...).
std::vector<std::vector<double>> log_softmax(const Tensor& logits, std::int64_t V) {
  CpuDevice host;
  const Tensor copy(logits.shape(), logits.dtype(), host), x(logits.shape(), DType::F64, host);
  logits.device().copy(copy, logits);
  ops::cast(x, copy);
  std::vector<std::vector<double>> rows;
  for (std::int64_t i = 0; i < logits.shape()[0]; ++i) {
    const auto all = x.rows(i, i + 1).values<double>();
    std::vector<double>& row = rows.emplace_back(all.begin(), all.begin() + V);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double logit : row) sum += std::exp(logit - largest);
    for (double& logit : row) logit = std::min(0.0, logit - largest - std::log(sum));
  }
  return rows;
}

}  // namespace

Translator::Translator(const Rank& rank, const Model& model, const GptConfig& config,
                       const TranslatorOptions& options, Hooks hooks)
    : rank_(rank), model_(model), config_(config), options_(options), hooks_(hooks) {
  const std::size_t blocks = index(config.layers), all = model.layers.size();
  if (!model.loss || all != kInFront + blocks + kBehind)
    fail(
        fmt::format("translator: a model of {} layers {} loss, expected {}: a whole model, each "
                    "block a layer",
                    all, model.loss ? "with a" : "without a", kInFront + blocks + kBehind));
  const std::size_t bridge = kInFront + index(config.encoder_blocks);
  encoder_ = {0, bridge};
  decoder_ = {bridge, all - kBehind};
  head_ = {all - kBehind, all};
}

Tensor Translator::through(const LayerRange& layers, Tensor x, const Pass& pass) const {
  std::vector<Saved> nothing;
  for (std::size_t i = 0; i < layers.count(); ++i) nothing.push_back(Saved::nothing());
  return forward_layers(model_, layers, std::move(x), nothing, pass, hooks_);
}

Translator::Source Translator::read(std::span<const std::vector<std::int32_t>> sources) const {
  const std::vector<std::vector<std::int32_t>> nothing(sources.size());
  Batch batch = pad_pairs(rank_.device, sources, nothing, options_.ids, options_.source_tokens, 1);
  const Pass pass{.training = false, .key_lengths = batch.lengths};
  Tensor value = through(encoder_, std::move(batch.tokens), pass);
  return {std::move(value), std::move(batch.lengths)};
}

Translator::Source Translator::repeated(const Source& one, std::int64_t count) const {
  const std::int64_t S = one.value.shape()[1], C = one.value.shape()[2];
  Source all{Tensor({count, S, C}, one.value.dtype(), rank_.device),
             Tensor({count}, DType::I32, rank_.device)};
  for (std::int64_t i = 0; i < count; ++i) {
    rank_.device.copy(all.value.rows(i, i + 1), one.value);
    rank_.device.copy(all.lengths.rows(i, i + 1), one.lengths);
  }
  return all;
}

std::vector<std::vector<double>> Translator::next_tokens(
    const Source& sources, std::span<const std::vector<std::int32_t>> beginnings) const {
  const std::int64_t N = std::ssize(beginnings), n = 1 + std::ssize(beginnings[0]);
  std::vector<std::int32_t> ids;  // (N, n)
  for (const std::vector<std::int32_t>& beginning : beginnings) {
    ids.push_back(options_.ids.begin);
    ids.insert(ids.end(), beginning.begin(), beginning.end());
  }
  SideInput side{.tokens = ids_on(rank_.device, ids, {N, n})};
  const Pass pass{.training = false, .key_lengths = sources.lengths, .side = &side};
  Tensor x = last_places(through(decoder_, sources.value.share(), pass));
  const Tensor logits = model_.loss->all_logits(through(head_, std::move(x), pass));
  return log_softmax(logits, config_.vocabulary);
}

std::vector<Hypothesis> Translator::translate(const std::vector<std::int32_t>& source, int width,
                                              double alpha) const {
  const Source one = read({&source, 1});
  return beam_search(
      [&](std::span<const std::vector<std::int32_t>> beginnings) {
        return next_tokens(repeated(one, std::ssize(beginnings)), beginnings);
      },
      {.width = width, .alpha = alpha, .end = options_.ids.end, .most = options_.most});
}

std::vector<std::vector<std::int32_t>> Translator::translate_greedily(
    std::span<const std::vector<std::int32_t>> sources) const {
  const Source all = read(sources);
  std::vector<std::vector<std::int32_t>> texts(sources.size());
  std::vector<std::size_t> ends(sources.size(), index(options_.most - 1));
  // All grow until the last has ended; what stands behind an end is dropped.
  for (std::int64_t n = 1; n < options_.most; ++n) {
    const std::vector<std::vector<double>> rows = next_tokens(all, texts);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto token = static_cast<std::int32_t>(
          std::max_element(rows[i].begin(), rows[i].end()) - rows[i].begin());
      if (token == options_.ids.end) ends[i] = std::min(ends[i], texts[i].size());
      texts[i].push_back(token);
    }
    const auto ended = [&](std::size_t i) { return ends[i] < texts[i].size(); };
    std::size_t open = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) open += ended(i) ? 0 : 1;
    if (open == 0 && hooks_.empty()) break;
  }
  for (std::size_t i = 0; i < texts.size(); ++i)
    texts[i].resize(std::min(ends[i], texts[i].size()));
  return texts;
}

}  // namespace aisc
