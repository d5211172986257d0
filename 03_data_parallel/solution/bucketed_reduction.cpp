#include "03_data_parallel/bucketed_reduction.h"

#include <algorithm>
#include <utility>

namespace aisc {

BucketedReduction::BucketedReduction(const Rank& rank, const Model& model, ParameterStore& store,
                                     std::vector<Range> buckets, bool overlap)
    : Reducer(rank, store),
      layers_(layer_units(model, store.units())),
      buckets_(std::move(buckets)),
      units_(units_of_buckets(store.layout(), buckets_)),
      overlap_(overlap),
      is_final_(store.units().size()) {}

void BucketedReduction::begin() {
  is_final_.assign(store().units().size(), false);
  launched_.clear();
}

void BucketedReduction::launch() {
  const Range& bucket = buckets_[launched_.size()];
  launched_.push_back(rank().world.all_reduce(  // comm: a bucket of gradients
      store().grads().flat(bucket.begin, bucket.count())));
}

void BucketedReduction::complete(std::size_t layer) {
  // LAB 03.4: launch
  // > layers_[layer].completes are the units that are final now, and is_final_ is yours to keep.
  // > What a unit does not use has no gradient yet: store().complete_grads(unit) makes it 0. At
  // > hand are launch(), units_[bucket], the units in a bucket, launched_ and overlap_.
  for (const std::size_t unit : layers_[layer].completes) {
    store().complete_grads(unit);
    is_final_[unit] = true;
  }
  const auto is_complete = [&](std::size_t bucket) {
    return std::all_of(units_[bucket].begin(), units_[bucket].end(),
                       [&](std::size_t unit) { return is_final_[unit]; });
  };
  while (overlap_ && launched_.size() < buckets_.size() && is_complete(launched_.size())) launch();
  // END LAB 03.4
}

void BucketedReduction::finish() {
  const auto span = rank().trace.span("communication", "gradients");
  // LAB 03.5: finish
  // > What has not been launched is launched now. Afterwards the gradients are read.
  while (launched_.size() < buckets_.size()) launch();
  for (Work& bucket : launched_) bucket.wait();
  // END LAB 03.5
}

}  // namespace aisc
