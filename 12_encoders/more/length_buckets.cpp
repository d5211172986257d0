#include "12_encoders/more/length_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "common/core/error.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

// Puts `values` in an order that is as likely as any other (Fisher and Yates): place i is taken by
// one of those that have no place yet.
template <class T>
void shuffle_by_counter(std::vector<T>& values, const Philox& random) {
  for (std::size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[static_cast<std::size_t>(random.below(i, i))]);
}

// Runs of `size` of these samples each, behind those that are in `batches`.
void cut(const std::vector<std::size_t>& samples, std::int64_t size, SampleBatches& batches) {
  const auto step = static_cast<std::size_t>(size);
  for (std::size_t i = 0; i < samples.size(); i += step) {
    const std::size_t end = std::min(i + step, samples.size());
    batches.emplace_back(samples.begin() + static_cast<std::ptrdiff_t>(i),
                         samples.begin() + static_cast<std::ptrdiff_t>(end));
  }
}

}  // namespace

std::vector<std::int64_t> draw_lengths(std::int64_t count, std::uint64_t seed,
                                       const SentenceLengths& of) {
  if (!(of.median >= 1) || of.longest < 1 || !(of.spread >= 0))
    fail(
        fmt::format("lengths: a median of {}, a spread of {} and a longest of {}, expected 1, 0 "
                    "and 1 or more",
                    of.median, of.spread, of.longest));
  const Philox random(seed, "lengths");
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const double length =
        of.median * std::exp(of.spread * random.normal(static_cast<std::uint64_t>(i)));
    lengths.push_back(std::llround(std::clamp(length, 1.0, static_cast<double>(of.longest))));
  }
  return lengths;
}

PaddingWaste padding_waste(std::span<const std::int64_t> lengths, const SampleBatches& batches) {
  PaddingWaste waste;
  for (const std::vector<std::size_t>& batch : batches) {
    std::int64_t longest = 0, tokens = 0;
    for (const std::size_t sample : batch) {
      if (sample >= lengths.size())
        fail(fmt::format("padding: sample {}, expected one below {}", sample, lengths.size()));
      longest = std::max(longest, lengths[sample]);
      tokens += lengths[sample];
    }
    const std::int64_t places = longest * std::ssize(batch);
    waste.tokens += tokens;
    waste.padding += places - tokens;
    waste.most = std::max(waste.most, places);
  }
  return waste;
}

SampleBatches random_batches(std::size_t samples, std::int64_t size, std::uint64_t seed) {
  if (size < 1) fail(fmt::format("batches: {} samples each, expected 1 or more", size));
  std::vector<std::size_t> order(samples);
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle_by_counter(order, Philox(seed, "batches"));
  SampleBatches batches;
  cut(order, size, batches);
  return batches;
}

std::vector<std::int64_t> bucket_bounds(std::int64_t shortest, std::int64_t longest, double step) {
  if (shortest < 1 || shortest > longest || !(step > 1))
    fail(
        fmt::format("buckets: from {} to {} in steps of {}, expected 1 or more, that or more, and "
                    "a step above 1",
                    shortest, longest, step));
  std::vector<std::int64_t> bounds;
  for (std::int64_t bound = shortest; bound < longest;
       bound = std::max(bound + 1, static_cast<std::int64_t>(step * static_cast<double>(bound))))
    bounds.push_back(bound);
  bounds.push_back(longest);
  return bounds;
}

SampleBatches bucketed_batches(std::span<const std::int64_t> lengths,
                               std::span<const std::int64_t> bounds, const BucketBatch& batch,
                               std::uint64_t seed) {
  if (batch.samples < 0 || batch.places < 0 || (batch.samples > 0) == (batch.places > 0))
    fail(fmt::format("buckets: {} samples and {} places a batch, expected one of them, 1 or more",
                     batch.samples, batch.places));
  std::vector<std::vector<std::size_t>> buckets(bounds.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), lengths[i]);
    if (bucket == bounds.end())
      fail(fmt::format("buckets: sample {} has length {}, expected {} or less", i, lengths[i],
                       bounds.empty() ? 0 : bounds.back()));
    buckets[static_cast<std::size_t>(bucket - bounds.begin())].push_back(i);
  }
  SampleBatches batches;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    shuffle_by_counter(buckets[b], Philox(seed, "bucket", b));
    cut(buckets[b],
        batch.samples > 0 ? batch.samples : std::max<std::int64_t>(1, batch.places / bounds[b]),
        batches);
  }
  // Else a run would see short samples first, and long ones last.
  shuffle_by_counter(batches, Philox(seed, "batches"));
  return batches;
}

}  // namespace aisc
