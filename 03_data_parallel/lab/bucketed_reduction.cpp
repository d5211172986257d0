// Yours to write; from 03_data_parallel/solution/bucketed_reduction.cpp (stub cff6b574b9ff).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "03_data_parallel/bucketed_reduction.h"

#include <algorithm>
#include <utility>

#include "common/core/error.h"

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
  // layers_[layer].completes are the units that are final now, and is_final_ is yours to keep.
  // What a unit does not use has no gradient yet: store().complete_grads(unit) makes it 0. At
  // hand are launch(), units_[bucket], the units in a bucket, launched_ and overlap_.
  throw NotImplemented("lab 03.4: launch", __FILE__, __LINE__);
  // END LAB 03.4
}

void BucketedReduction::finish() {
  const auto span = rank().trace.span("communication", "gradients");
  // LAB 03.5: finish
  // What has not been launched is launched now. Afterwards the gradients are read.
  throw NotImplemented("lab 03.5: finish", __FILE__, __LINE__);
  // END LAB 03.5
}

}  // namespace aisc
