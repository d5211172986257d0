// Gradients that are summed in buckets, while backward still runs.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "03_data_parallel/buckets.h"
#include "common/core/error.h"
#include "common/train/step_parts.h"

namespace aisc {

// A bucket is launched when the gradients of all units in it are final, buckets in their order, the
// same on all ranks; and only in the last micro-batch, since `complete` comes only there. What was
// launched is waited for in finish(), before anybody reads a gradient.
class BucketedReduction final : public Reducer {
 public:
  // `buckets` of the flat gradients, in the order in which they are launched (bucket_layout).
  // overlap false: all of them after backward, to compare with.
  BucketedReduction(const Rank& rank, const Model& model, ParameterStore& store,
                    std::vector<Range> buckets, bool overlap = true);

  void begin() override;
  void complete(std::size_t layer) override;
  void finish() override;

  void launch();  // the next bucket
  std::size_t launched() const { return launched_.size(); }

 private:
  const std::vector<LayerUnits> layers_;
  const std::vector<Range> buckets_;
  const std::vector<std::vector<std::size_t>> units_;  // of each bucket
  const bool overlap_;
  // Of this step.
  std::vector<bool> is_final_;  // by unit
  std::vector<Work> launched_;  // all-reduces of the first buckets
};

struct BucketOptions {
  std::int64_t first_bytes = 1 << 20;  // PyTorch's figures
  std::int64_t bytes = 25 << 20;
  bool overlap = true;
};

// All are under way at once; each takes memory of its own in the communicator.
inline constexpr std::size_t kMostBuckets = 4096;

// For StepParts::reducer. Throws Error, when it is called, for buckets of less than an element, and
// for so small ones that there would be more than kMostBuckets.
inline auto bucketed(const BucketOptions& options) {
  return [options](const Rank& rank, const Model& model,
                   ParameterStore& store) -> std::unique_ptr<Reducer> {
    const auto element = static_cast<std::int64_t>(size_of(store.grads().dtype()));
    std::vector<Range> buckets = bucket_layout(
        store.layout().count(), options.first_bytes / element, options.bytes / element);
    if (buckets.size() > kMostBuckets)
      fail(fmt::format("{} buckets of {} bytes: at most {} expected, make them larger",
                       buckets.size(), options.bytes, kMostBuckets));
    return std::make_unique<BucketedReduction>(rank, model, store, std::move(buckets),
                                               options.overlap);
  };
}

}  // namespace aisc
