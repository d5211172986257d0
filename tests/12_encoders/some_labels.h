// Texts with a label each, drawn by counter, of lengths that differ, and of no meaning.
#pragma once

#include <memory>
#include <vector>

#include "tests/12_encoders/some_pairs.h"

namespace aisc {

class SomeLabels final : public SampleSource {
 public:
  SomeLabels(std::int64_t tokens, std::int64_t vocabulary, std::int64_t labels,
             std::uint64_t seed = 1)
      : pairs_(tokens, vocabulary, 0, seed), labels_(labels) {}

  Batch batch(Device& device, std::int64_t first, std::int64_t count) const override {
    Batch batch = pairs_.batch(device, first, count);  // picked and labelled is each [CLS]
    CpuDevice host;
    const Tensor on_host({count}, DType::I32, host);
    device.copy(on_host, batch.targets);
    std::vector<std::int32_t> labels;
    for (std::int64_t i = 0; i < count; ++i)
      labels.push_back(static_cast<std::int32_t>(
          (3 * on_host.data<std::int32_t>()[i] + (first + i) * (first + i)) % labels_));
    batch.targets = ids_tensor(labels, device);
    batch.terms = terms(first, count);
    return batch;
  }
  double terms(std::int64_t /*first*/, std::int64_t count) const override {
    return static_cast<double>(count);
  }
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<SomeLabels>(*this);
  }

 private:
  SomePairs pairs_;
  std::int64_t labels_;
};

}  // namespace aisc
