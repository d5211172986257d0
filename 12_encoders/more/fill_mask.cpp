#include "12_encoders/more/fill_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "12_encoders/masked_words.h"
#include "12_encoders/padded_batch.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/nn/driver.h"
#include "common/train/micro_batch.h"

namespace aisc {
namespace {

constexpr std::string_view kMask = "[MASK]";

// Of one row of logits.
Guesses best_of(std::span<const double> logits, const WordPiece& pieces, int most) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto shown = std::min<std::ptrdiff_t>(most, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + shown, order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return std::pair(-logits[index(a)], a) < std::pair(-logits[index(b)], b);
                    });
  Guesses guesses;
  for (std::ptrdiff_t i = 0; i < shown; ++i) {
    const std::int32_t id = order[index(i)];
    guesses.emplace_back(pieces.token(id), std::exp(logits[index(id)] - largest) / sum);
  }
  return guesses;
}

}  // namespace

std::vector<std::int32_t> encode_masked(const WordPiece& pieces, const std::string& text) {
  std::vector<std::int32_t> ids{pieces.special().cls};
  for (std::size_t begin = 0;;) {
    const std::size_t mask = text.find(kMask, begin);
    const std::vector<std::int32_t> between =
        pieces.encode(std::string_view(text).substr(begin, mask - begin));
    ids.insert(ids.end(), between.begin(), between.end());
    if (mask == std::string::npos) break;
    ids.push_back(pieces.special().mask);
    begin = mask + kMask.size();
  }
  ids.push_back(pieces.special().sep);
  return ids;
}

void require_fillable(const WordPiece& pieces, const std::string& text, std::int64_t context) {
  const std::vector<std::int32_t> ids = encode_masked(pieces, text);
  const std::int64_t masks = std::count(ids.begin(), ids.end(), pieces.special().mask);
  if (masks < 1 || masks > most_masked(context) || std::ssize(ids) > context)
    fail(fmt::format(
        "--sample \"{}\": found {} tokens, {} of them {}; expected at most {}, and 1 to {} {} "
        "for a context of {}",
        text, std::ssize(ids), masks, kMask, context, most_masked(context), kMask, context));
}

std::vector<Guesses> fill_mask(const Rank& rank, const Model& model, const GptConfig& config,
                               const WordPiece& pieces, const std::string& text, int most,
                               Hooks hooks) {
  require_fillable(pieces, text, config.context);
  MaskedPair one{.tokens = encode_masked(pieces, text)};
  one.segments.resize(one.tokens.size());
  for (std::size_t t = 0; t < one.tokens.size(); ++t)
    if (one.tokens[t] == pieces.special().mask) one.places.push_back(static_cast<std::int32_t>(t));
  one.targets.resize(one.places.size());
  const MicroBatch micro =
      micro_batch_of(pad_masked_pairs(rank.device, {&one, 1}, config.context,
                                      most_masked(config.context), pieces.special().pad),
                     {.training = false});
  const Tensor words =
      model.loss->all_logits(forward(model, micro.batch.tokens, hooks, micro.pass));
  CpuDevice host;
  const Tensor copy(words.shape(), words.dtype(), host), logits(words.shape(), DType::F64, host);
  words.device().copy(copy, words);
  ops::cast(logits, copy);
  std::vector<Guesses> all;
  for (std::int64_t m = 0; m < std::ssize(one.places); ++m)
    all.push_back(best_of(logits.rows(m, m + 1).values<double>().first(index(pieces.vocabulary())),
                          pieces, most));
  return all;
}

std::string in_lines(const std::vector<Guesses>& guesses) {
  std::string text;
  for (const Guesses& of_mask : guesses) {
    std::string line;
    for (const auto& [piece, probability] : of_mask)
      line += fmt::format("{}{} {:.0f} %", line.empty() ? "" : ", ", piece, 100 * probability);
    text += line + "\n";
  }
  return text;
}

}  // namespace aisc
