// A step of a toy model in slices or with owners, for tests that compare the two.
#pragma once

#include <memory>
#include <vector>

#include "04_sharding/owned_units.h"
#include "tests/support/toy_model.h"

namespace aisc {

using Bytes = std::vector<std::int64_t>;

inline constexpr std::int64_t kF64 = 8;
inline constexpr GatherOptions kNoneAhead = {.prefetch = 0};
inline constexpr GatherOptions kAlwaysWhole = {.persist = GatherOptions::kAll};

// A toy model on one rank, in slices or with owners.
struct ToyRun {
  ToyRun(const Rank& rank, const std::vector<toy::Size>& sizes, const StepParts& parts)
      : toy(rank, sizes,
            {.ranks = parts.shards(rank.world.size()),
             .values = parts.all_values,
             .gradients = parts.all_gradients}),
        reducer(parts.reducer(rank, toy.model, *toy.store)) {
    reducer->take_slices();
  }
  // Without the update.
  void step(int micro_batches, LayerHook* watch = nullptr) {
    const auto one = [&] { return Tensor({1, 1}, DType::F64, toy.rank.device); };
    const ReadMicroBatch read = [&](std::int64_t m) {
      return MicroBatch{
          .batch = {.tokens = one(), .targets = one()},
          .pass = {.micro_batch = static_cast<int>(m), .last_micro_batch = m + 1 == micro_batches}};
    };
    std::vector<LayerHook*> hooks = {reducer.get()};
    if (watch) hooks.push_back(watch);
    toy.store->clear_grads();
    reducer->begin();
    one_after_another(toy.rank, toy.model, micro_batches, read, 1, hooks);
    reducer->finish();
  }
  std::vector<std::int64_t> counts() const {  // of the units
    std::vector<std::int64_t> all;
    for (const FlatUnit& unit : toy.store->layout().units()) all.push_back(unit.range.count());
    return all;
  }

  toy::Toy toy;
  std::unique_ptr<Reducer> reducer;
};

// Padded to 128, 64, 192 and 128 elements.
inline std::vector<toy::Size> odd_layers() {
  return {{.count = 100}, {.count = 64}, {.count = 130}, {.count = 70}};
}

}  // namespace aisc
