// Gradients of which each rank keeps the sum of its shard: a reduce-scatter in place of an
// all-reduce (ZeRO, section 5.2).
#pragma once

#include <cstdint>
#include <vector>

#include "common/comm/rank.h"
#include "common/core/work.h"
#include "common/nn/parameter_store.h"
#include "common/ops/ops.h"

namespace aisc {

class ScatteredGradients {
 public:
  struct Options {
    // The store has no memory for gradients: each unit's is there from the first layer of backward
    // that adds to it until it has been scattered, in every micro-batch. Otherwise all are there,
    // and scattered once a step.
    bool frees = true;
    // Elements that are sent at a time, over all ranks: the memory for them does not depend on the
    // model (ZeRO's C_B, section 6.2). 0: units as they are, which saves a copy, and of which one
    // is under way while backward goes on; buckets are waited for one by one.
    std::int64_t bucket = 0;
  };
  // Throws Error for a bucket that is not a multiple of the ranks or is below 0.
  ScatteredGradients(const Rank& rank, ParameterStore& store, const Options& options);

  void begin();                 // of a step: what is scattered next overwrites
  void bind(std::size_t unit);  // memory for a unit's gradients, unless it has some
  // Launches the sum over the ranks of a unit's gradients, which are those of this micro-batch
  // (frees) or of all. It is waited for by the next call, or by finish(): one is under way at a
  // time, while backward of the layer below computes. Collective.
  void scatter(std::size_t unit);
  void finish();  // waits for what is under way

  // This rank's shard of a unit's sums, (its count / ranks), which are there after finish(); where
  // gradients are freed also those of all units, one after the other.
  View shard(std::size_t unit) const;
  View shards() const { return shards_; }

 private:
  // A sum that is under way.
  struct Sending {
    Tensor in, out;  // what is sent, and what arrives, where these are no other's memory
    View adds_to;    // where `out` is added; empty: it arrived in its place
    Work work;       // uses the memory above
  };
  void reduce(ConstView whole, View to, ops::Into into);
  void reduce_in_buckets(ConstView whole, View to, ops::Into into);
  void wait();

  const Rank rank_;
  ParameterStore& store_;
  const Options options_;
  Tensor shards_;              // where the store has no memory for gradients
  std::vector<bool> written_;  // by unit: its shard has a sum of this step
  Sending sending_;
};

}  // namespace aisc
