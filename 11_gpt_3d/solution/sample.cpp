#include "11_gpt_3d/sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/core/error.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

constexpr std::int64_t kBytes = 256;

// The logits of the byte that follows the last `context` bytes of `text`.
std::vector<double> next_logits(const Rank& rank, const Gpt& model, const std::string& text) {
  const std::int64_t T =
      std::min<std::int64_t>(model.config().context, static_cast<std::int64_t>(text.size()));
  Tensor tokens({1, T}, DType::I32, rank.device);
  std::transform(text.end() - T, text.end(), tokens.data<std::int32_t>(),
                 [](char c) { return static_cast<unsigned char>(c); });
  const Tensor logits = forward(model, tokens);  // (1, T, V)
  const ConstView last = as_rows(logits).rows(T - 1, T);
  std::vector<double> result(kBytes);
  dispatch(logits.dtype(), [&](auto type) {
    const auto* row = last.data<decltype(type)>();
    std::transform(row, row + kBytes, result.begin(),
                   [](auto x) { return static_cast<double>(x); });
  });
  return result;
}

std::size_t draw(const std::vector<double>& logits, double temperature, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return static_cast<std::size_t>(best - logits.begin());
  std::vector<double> weights(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    total += weights[i] = std::exp((logits[i] - *best) / temperature);
  double left = uniform * total;
  for (std::size_t i = 0; i + 1 < weights.size(); ++i)
    if ((left -= weights[i]) < 0) return i;
  return weights.size() - 1;
}

}  // namespace

std::string sample(const Rank& rank, const Gpt& model, const std::string& prompt,
                   const SampleOptions& options, const std::function<bool(char)>& each) {
  if (model.config().vocabulary < kBytes)
    fail("sample: the vocabulary has " + std::to_string(model.config().vocabulary) +
         " entries, expected at least the 256 bytes");
  if (!(options.temperature >= 0))
    fail("sample: temperature is " + std::to_string(options.temperature) + ", expected >= 0");
  const Philox random(options.seed, "sample");
  std::string text = prompt.empty() ? "\n" : prompt;
  const std::size_t begin = text.size();
  for (std::int64_t i = 0; i < options.bytes; ++i) {
    const std::vector<double> logits = next_logits(rank, model, text);
    const double uniform = random.uniform(static_cast<std::uint64_t>(i));
    text += static_cast<char>(draw(logits, options.temperature, uniform));
    if (!each(text.back())) break;
  }
  return text.substr(begin);
}

}  // namespace aisc
