// Padding: the samples of a batch are made as long as its longest one. What that wastes, and what
// is left of it where like lengths share a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace aisc {

// Lengths like those of sentences: exp of a normal number, rounded, from 1 to `longest`.
// Length i is a pure function of (seed, i). Throws Error for a median or a longest below 1, or a
// spread below 0.
struct SentenceLengths {
  double median = 20, spread = 0.6;  // `spread` is the standard deviation of the logarithm
  std::int64_t longest = 256;
};
std::vector<std::int64_t> draw_lengths(std::int64_t count, std::uint64_t seed,
                                       const SentenceLengths& of = {});

// Batches of samples, by their indices; each sample is in one of them.
using SampleBatches = std::vector<std::vector<std::size_t>>;

struct PaddingWaste {
  std::int64_t tokens = 0;   // of samples
  std::int64_t padding = 0;  // beside them
  std::int64_t most = 0;     // places of a batch, padding included: what memory has to hold
  double share() const {
    return tokens + padding == 0
               ? 0
               : static_cast<double>(padding) / static_cast<double>(tokens + padding);
  }
};
// Each batch padded to its longest sample. Throws Error for an index outside `lengths`.
PaddingWaste padding_waste(std::span<const std::int64_t> lengths, const SampleBatches& batches);

// In random order, `size` samples a batch; the last one may have fewer. The order is a pure
// function of the seed and the number of samples. Throws Error for a size below 1.
SampleBatches random_batches(std::size_t samples, std::int64_t size, std::uint64_t seed);

// The longest lengths of buckets, as tensor2tensor makes them: shortest, and then each `step` times
// the one before it and at least one more, until `longest`, which is the last. Throws Error unless
// 1 <= shortest <= longest and step > 1.
std::vector<std::int64_t> bucket_bounds(std::int64_t shortest, std::int64_t longest, double step);

// How many samples of a bucket are a batch: `samples` of each, or as many as have `places` in all
// where each is as long as the bucket's bound, at least one: shorter samples then make larger
// batches, and each step has about as many tokens.
struct BucketBatch {
  std::int64_t samples = 0, places = 0;  // one of them is 0
};
// Batches of like lengths (Khomenko et al., "Accelerating recurrent neural network training using
// sequence bucketing and multi-GPU data parallelization", arXiv 1708.05604): a sample goes to the
// first bucket whose bound is not below its length. In random order inside its bucket, and the
// batches of all buckets in random order, too; of each bucket the last batch may have fewer.
// Throws Error for a length above the last bound, and for a BucketBatch without one size.
SampleBatches bucketed_batches(std::span<const std::int64_t> lengths,
                               std::span<const std::int64_t> bounds, const BucketBatch& batch,
                               std::uint64_t seed);

}  // namespace aisc
