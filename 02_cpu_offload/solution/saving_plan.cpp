#include "02_cpu_offload/saving_plan.h"

#include <algorithm>
#include <utility>

namespace aisc {
namespace {

constexpr Saving kChoices[] = {Saving::Keep, Saving::Recompute, Saving::Offload};

bool allows(const LayerCost& layer, Saving choice) {
  return choice == Saving::Keep || (choice == Saving::Recompute ? layer.recomputes : layer.moves);
}

// Between its forward and its backward.
std::int64_t kept_bytes(const LayerCost& layer, Saving choice) {
  return choice == Saving::Keep        ? layer.saved_bytes
         : choice == Saving::Recompute ? layer.input_bytes
                                       : layer.stays_bytes;
}

// The layers so far, of which the last has `last`.
struct Chain {
  std::vector<Saving> layers = {};
  double seconds = 0;
  std::int64_t below_bytes = 0;  // what all of them keep
  std::int64_t going_bytes = 0;  // what the last has on its way while the next layer computes
  double copy_seconds = 0;       // of that
  std::int64_t peak_bytes = 0;
  Saving last() const { return layers.empty() ? Saving::Keep : layers.back(); }
};

Chain with(const Chain& chain, const LayerCost& layer, Saving choice) {
  Chain next = chain;
  // LAB 02.5: keep, recompute or offload
  // > `chain` are the layers below, and this one is put on it: all five numbers of `next` (Chain,
  // > above) have to be right for one layer more, by the rules of plan_of() in saving_plan.h.
  // > chain.copy_seconds is 0 where nothing of the one below is on its way. kept_bytes() is above.
  const double again = choice == Saving::Recompute ? layer.forward_seconds : 0;
  next.seconds += layer.forward_seconds + again + layer.backward_seconds;
  next.seconds += std::max(0.0, chain.copy_seconds - layer.forward_seconds);
  next.seconds += std::max(0.0, chain.copy_seconds - again - layer.backward_seconds);
  next.peak_bytes =
      std::max(chain.peak_bytes, chain.below_bytes + chain.going_bytes + layer.saved_bytes);
  next.below_bytes += kept_bytes(layer, choice);
  const bool goes = choice == Saving::Offload;
  next.going_bytes = goes ? layer.saved_bytes - layer.stays_bytes : 0;
  next.copy_seconds = goes ? layer.copy_seconds : 0;
  // END LAB 02.5
  next.layers.push_back(choice);
  return next;
}

// Of those with the same last choice the ones that nobody beats: more bytes, fewer seconds.
std::vector<Chain> undominated(std::vector<Chain> chains) {
  std::sort(chains.begin(), chains.end(), [](const Chain& a, const Chain& b) {
    if (a.last() != b.last()) return a.last() < b.last();
    if (a.below_bytes != b.below_bytes) return a.below_bytes < b.below_bytes;
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.peak_bytes < b.peak_bytes;
  });
  std::vector<Chain> best;
  for (Chain& chain : chains)
    if (best.empty() || best.back().last() != chain.last() || chain.seconds < best.back().seconds)
      best.push_back(std::move(chain));
  return best;
}

SavingPlan of_chain(Chain chain) {
  return {std::move(chain.layers), chain.seconds, chain.peak_bytes};
}

}  // namespace

SavingPlan plan_of(std::span<const LayerCost> layers, std::vector<Saving> choices) {
  Chain chain;
  for (std::size_t i = 0; i < layers.size(); ++i) chain = with(chain, layers[i], choices[i]);
  return of_chain(std::move(chain));
}

std::optional<SavingPlan> fastest_within(std::span<const LayerCost> layers,
                                         std::int64_t limit_bytes) {
  std::vector<Chain> chains(1);
  for (const LayerCost& layer : layers) {
    std::vector<Chain> longer;
    for (const Chain& chain : chains)
      for (const Saving choice : kChoices)
        if (allows(layer, choice)) {
          Chain next = with(chain, layer, choice);
          if (next.peak_bytes <= limit_bytes) longer.push_back(std::move(next));
        }
    chains = undominated(std::move(longer));
  }
  if (chains.empty()) return {};
  const auto best =
      std::min_element(chains.begin(), chains.end(), [](const auto& a, const auto& b) {
        return a.seconds != b.seconds ? a.seconds < b.seconds : a.peak_bytes < b.peak_bytes;
      });
  return of_chain(*best);
}

}  // namespace aisc
