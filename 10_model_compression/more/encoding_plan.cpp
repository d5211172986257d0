#include "10_model_compression/more/encoding_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

struct WayOfFour {
  Saving choice;
  bool encoded;
};
constexpr WayOfFour kFourWays[] = {{Saving::Keep, false},
                                   {Saving::Recompute, false},
                                   {Saving::Offload, false},
                                   {Saving::Keep, true}};

bool has_way(const LayerCost& layer, const EncodingCost& encoding, const WayOfFour& way) {
  if (way.encoded) return encoding.encodes;
  return way.choice == Saving::Keep ||
         (way.choice == Saving::Recompute ? layer.recomputes : layer.moves);
}

// What the layers of a plan keep below the next one.
std::int64_t below_bytes(std::span<const LayerCost> layers, std::span<const EncodingCost> encodings,
                         const EncodingPlan& plan) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < plan.encoded.size(); ++i) {
    const Saving choice = plan.plan.layers[i];
    bytes += plan.encoded[i]               ? encodings[i].bytes
             : choice == Saving::Keep      ? layers[i].saved_bytes
             : choice == Saving::Recompute ? layers[i].input_bytes
                                           : layers[i].stays_bytes;
  }
  return bytes;
}

// Chains of the layers so far, and what each keeps.
struct EncodingChain {
  EncodingPlan plan;
  std::int64_t below_bytes = 0;
  Saving last() const { return plan.plan.layers.back(); }
};

// Of those with the same last choice the ones that nobody beats: more bytes, fewer seconds. Kept
// and kept encoded are the same choice here, since both have nothing on its way.
std::vector<EncodingChain> unbeaten(std::vector<EncodingChain> chains) {
  std::sort(chains.begin(), chains.end(), [](const EncodingChain& a, const EncodingChain& b) {
    if (a.last() != b.last()) return a.last() < b.last();
    if (a.below_bytes != b.below_bytes) return a.below_bytes < b.below_bytes;
    const SavingPlan &p = a.plan.plan, &q = b.plan.plan;
    return p.seconds != q.seconds ? p.seconds < q.seconds : p.peak_bytes < q.peak_bytes;
  });
  std::vector<EncodingChain> best;
  for (EncodingChain& chain : chains)
    if (best.empty() || best.back().last() != chain.last() ||
        chain.plan.plan.seconds < best.back().plan.plan.seconds)
      best.push_back(std::move(chain));
  return best;
}

}  // namespace

EncodingCost encoding_cost(SavedAs how, std::int64_t bytes, std::int64_t number_bytes,
                           double bytes_per_second) {
  if (how == SavedAs::Plain || how == SavedAs::Lossless)
    fail("encoding_cost: bytes of plain and lossless are the run's, expected bf16, f16 or f8");
  const bool f8 = how == SavedAs::F8;
  const std::int64_t count = bytes / number_bytes, rounded = f8 ? count : 2 * count;
  const std::int64_t after = rounded + (f8 ? 4 * ((count + 127) / 128) : 0);
  if (after >= bytes) return {.bytes = bytes, .encodes = false};
  const auto seconds = [&](std::int64_t moved) {
    return static_cast<double>(moved) / bytes_per_second;
  };
  return {.encode_seconds = seconds((f8 ? 2 : 1) * bytes + rounded),
          .decode_seconds = seconds(bytes + rounded),
          .bytes = after};
}

// An encoded layer is to plan_of() a kept one that computes for longer, and a recomputed one by
// what it keeps of it. So seconds are those of the former, bytes those of the latter.
EncodingPlan plan_of(std::span<const LayerCost> layers, std::span<const EncodingCost> encodings,
                     std::vector<Saving> choices, std::vector<bool> encoded) {
  if (layers.size() != encodings.size() || choices.size() != encoded.size() ||
      choices.size() > layers.size())
    fail(
        fmt::format("encoding plan: {} layers, {} encodings, {} choices, {} of them encoded or not",
                    layers.size(), encodings.size(), choices.size(), encoded.size()));
  std::vector<LayerCost> costs(layers.begin(), layers.begin() + std::ssize(choices));
  std::vector<Saving> by_bytes = choices;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (!encoded[i]) continue;
    if (choices[i] != Saving::Keep)
      fail(fmt::format("encoding plan: layer {} is encoded, expected one that is kept", i));
    costs[i].forward_seconds += encodings[i].encode_seconds;
    costs[i].backward_seconds += encodings[i].decode_seconds;
    costs[i].input_bytes = encodings[i].bytes;
    by_bytes[i] = Saving::Recompute;
  }
  SavingPlan plan = plan_of(costs, std::move(choices));
  plan.peak_bytes = plan_of(costs, std::move(by_bytes)).peak_bytes;
  return {std::move(plan), std::move(encoded)};
}

std::optional<EncodingPlan> fastest_with_encoding(std::span<const LayerCost> layers,
                                                  std::span<const EncodingCost> encodings,
                                                  std::int64_t limit_bytes) {
  std::vector<EncodingChain> chains;
  chains.push_back({.plan = plan_of(layers, encodings, {}, {})});
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<EncodingChain> longer;
    for (const EncodingChain& chain : chains)
      for (const WayOfFour& way : kFourWays) {
        if (!has_way(layers[i], encodings[i], way)) continue;
        std::vector<Saving> choices = chain.plan.plan.layers;
        std::vector<bool> encoded = chain.plan.encoded;
        choices.push_back(way.choice);
        encoded.push_back(way.encoded);
        EncodingPlan plan = plan_of(layers, encodings, std::move(choices), std::move(encoded));
        if (plan.plan.peak_bytes > limit_bytes) continue;
        const std::int64_t below = below_bytes(layers, encodings, plan);
        longer.push_back({std::move(plan), below});
      }
    chains = unbeaten(std::move(longer));
  }
  if (chains.empty()) return {};
  const auto best = std::min_element(
      chains.begin(), chains.end(), [](const EncodingChain& a, const EncodingChain& b) {
        const SavingPlan &p = a.plan.plan, &q = b.plan.plan;
        return p.seconds != q.seconds ? p.seconds < q.seconds : p.peak_bytes < q.peak_bytes;
      });
  return best->plan;
}

}  // namespace aisc
