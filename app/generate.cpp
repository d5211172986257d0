#include "app/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "common/core/error.h"
#include "common/core/rng.h"

namespace aisc {

void validate(const GenerateOptions& o) {
  if (!(o.temperature >= 0 && std::isfinite(o.temperature)))
    fail(fmt::format("generate: temperature is {}, expected 0 or more", o.temperature));
  if (o.top_k < 0) fail(fmt::format("generate: top_k is {}, expected 0 or more", o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1))
    fail(fmt::format("generate: top_p is {}, expected 0 < top_p <= 1", o.top_p));
}

namespace {

// Throws Error; returns how many tokens may be drawn.
std::int64_t check(const GptConfig& config, std::span<const std::int32_t> prompt,
                   const GenerateOptions& o) {
  validate(o);
  const std::int64_t V = config.vocabulary;
  if (o.tokens < 0) fail(fmt::format("generate: tokens is {}, expected 0 or more", o.tokens));
  if (o.classes < 0 || o.classes > V)
    fail(fmt::format("generate: classes is {}, expected 0 to {}, the vocabulary", o.classes, V));
  if (prompt.empty()) fail("generate: the prompt is empty, expected at least one token");
  for (std::size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= V)
      fail(fmt::format("generate: prompt[{}] is {}, expected 0 <= token < {}, the vocabulary", i,
                       prompt[i], V));
  return o.classes > 0 ? o.classes : V;
}

// Sets the weights of all but the k largest logits to 0; `ids` are those of the k.
void keep_top_k(std::vector<std::int32_t>& ids, std::vector<double>& weights,
                std::span<const double> logits, std::size_t k) {
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    const double x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(ids.begin(), end, ids.end(), larger);
  for (auto id = end; id != ids.end(); ++id) weights[static_cast<std::size_t>(*id)] = 0;
  ids.erase(end, ids.end());
}

// Sets the weights of all but the smallest set of the largest whose sum reaches p times that of all
// to 0. The size m of that set is found by halving: `low` largest are too few, `high` are enough,
// and each half is partitioned once, so that all of it costs as much as a few passes.
void keep_top_p(std::vector<std::int32_t>& ids, std::vector<double>& weights, double p) {
  const auto weight = [&](std::int32_t id) { return weights[static_cast<std::size_t>(id)]; };
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    return weight(a) > weight(b) || (weight(a) == weight(b) && a < b);
  };
  const auto add = [&](double sum, std::int32_t id) { return sum + weight(id); };
  const double wanted = p * std::accumulate(ids.begin(), ids.end(), 0.0, add);
  auto low = ids.begin(), high = ids.end();
  double below = 0;  // the sum of the `low` largest
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, larger);
    const double sum = std::accumulate(low, middle, below, add);
    if (sum >= wanted) {
      high = middle;
    } else {
      low = middle;
      below = sum;
    }
  }
  for (auto id = high; id != ids.end(); ++id) weights[static_cast<std::size_t>(*id)] = 0;
}

// logits (1, V) of any type: the first `classes`.
void read_logits(std::vector<double>& to, const Tensor& logits, std::int64_t classes,
                 Device& host) {
  const Tensor known({classes}, logits.dtype(), host);
  host.copy(known, logits.view().flat(0, classes));
  to.resize(static_cast<std::size_t>(classes));
  dispatch(known.dtype(), [&](auto type) {
    const auto from = known.values<decltype(type)>();
    std::transform(from.begin(), from.end(), to.begin(),
                   [](auto x) { return static_cast<double>(x); });
  });
}

Tensor tokens_of(std::span<const std::int32_t> ids, Device& device, Device& host) {
  const Shape shape{1, static_cast<std::int64_t>(ids.size())};
  Tensor tokens(shape, DType::I32, device);
  device.copy(tokens, ConstView(ids.data(), shape, DType::I32, host));
  return tokens;
}

}  // namespace

std::int32_t draw(std::span<const double> logits, const GenerateOptions& options, double uniform) {
  validate(options);
  if (logits.empty()) fail("generate: there are no logits");
  const auto largest = std::max_element(logits.begin(), logits.end());
  const bool numbers = std::none_of(logits.begin(), logits.end(), [](double x) { return x != x; });
  if (!numbers || !std::isfinite(*largest))
    fail("generate: the model's logits are not finite: its weights may be damaged");
  if (options.temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());

  std::vector<double> weights(logits.size());
  std::transform(logits.begin(), logits.end(), weights.begin(),
                 [&](double x) { return std::exp((x - *largest) / options.temperature); });
  const auto k = static_cast<std::size_t>(options.top_k);
  const bool some = k > 0 && k < logits.size();
  if (some || options.top_p < 1) {
    std::vector<std::int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    if (some) keep_top_k(ids, weights, logits, k);
    if (options.top_p < 1) keep_top_p(ids, weights, options.top_p);
  }

  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t token = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    token = i;  // stays with the last one where rounding leaves a rest
    if ((left -= weights[i]) < 0) break;
  }
  return static_cast<std::int32_t>(token);
}

bool takes_part(const Communicator& world, const TextRanks& ranks) {
  return world.rank() == 0 || !ranks.hooks.empty() ||
         (ranks.mesh && ranks.mesh->place().expert_dp == 0);
}

namespace {

// What the rank of `stage` says whose indices are 0 in the other directions: all do the same then.
// Direction by direction, so that only those that take part need to be there.
std::int32_t agreed(const Rank& rank, const TextRanks& ranks, std::int32_t mine, int stage) {
  CpuDevice host;
  const View word(&mine, {1}, DType::I32, host);  // a token or whether to go on
  if (!ranks.hooks.empty())
    (ranks.mesh ? ranks.mesh->gradients() : rank.world).broadcast(word, 0).wait();  // comm: 4 bytes
  if (!ranks.mesh) return mine;
  ranks.mesh->pp().broadcast(word, stage).wait();  // comm: 4 bytes
  ranks.mesh->tp().broadcast(word, 0).wait();      // comm: 4 bytes
  ranks.mesh->cp().broadcast(word, 0).wait();      // comm: 4 bytes
  ranks.mesh->ep().broadcast(word, 0).wait();      // comm: 4 bytes
  return mine;
}

}  // namespace

std::vector<std::int32_t> generate(const Rank& rank, const Model& model, const GptConfig& config,
                                   std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<bool(std::int32_t)>& each,
                                   const TextRanks& ranks) {
  const std::int64_t classes = check(config, prompt, options);
  const std::int64_t context = config.context;
  const Philox random(options.seed, "sample");
  KeyValueCache cache(context);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  std::int64_t fresh = static_cast<std::int64_t>(text.size());  // tokens that are not in the cache
  std::vector<double> logits;
  CpuDevice host;
  const int last = ranks.stages ? ranks.stages->last() : 0;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (cache.length() + fresh > context) {
      cache.clear();
      fresh = std::max<std::int64_t>(context / 2, 1);
    }
    const Tensor next = tokens_of({text.end() - fresh, text.end()}, rank.device, host);
    Tensor out = ranks.stages ? ranks.stages->forward_cached(model, next, cache, ranks.hooks)
                              : forward_cached(model, next, cache, ranks.hooks);
    std::int32_t token = 0;
    if (out) {  // the last stage is here
      if (model.loss) out = model.loss->all_logits(std::move(out));
      read_logits(logits, out, classes, host);
      token = draw(logits, options, random.uniform(static_cast<std::uint64_t>(i)));
    }
    token = agreed(rank, ranks, token, last);
    if (token == options.end_of_text) break;
    text.push_back(token);
    fresh = 1;
    if (agreed(rank, ranks, each(token) ? 1 : 0, 0) == 0) break;
  }
  text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  return text;
}

}  // namespace aisc
