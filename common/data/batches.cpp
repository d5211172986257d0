#include "common/data/batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {
namespace {

void check_text(std::span<const std::uint8_t> text, std::int64_t context) {
  if (context < 1) fail(fmt::format("the context is {} tokens, expected 1 or more", context));
  if (static_cast<std::int64_t>(text.size()) < context + 1)
    fail(fmt::format(
        "the text is too short: found {} bytes, expected {} for one window: a context of {} tokens "
        "and the byte after it",
        text.size(), context + 1, context));
}

// The windows of T tokens that begin at start(0) .. start(B - 1), put together on the host.
template <class Start>
Batch gather(Device& device, std::span<const std::uint8_t> text, std::int64_t B, std::int64_t T,
             Start start) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(B * T));  // (B, T)
  std::vector<std::int32_t> targets(tokens.size());                   // (B, T)
  for (std::int64_t b = 0; b < B; ++b) {
    const std::uint8_t* window = text.data() + start(b);  // (T + 1)
    std::copy(window, window + T, tokens.begin() + b * T);
    std::copy(window + 1, window + T + 1, targets.begin() + b * T);
  }
  CpuDevice host;
  const Shape shape{B, T};
  Batch batch{Tensor(shape, DType::I32, device), Tensor(shape, DType::I32, device)};
  device.copy(batch.tokens, ConstView(tokens.data(), shape, DType::I32, host));
  device.copy(batch.targets, ConstView(targets.data(), shape, DType::I32, host));
  return batch;
}

}  // namespace

BatchSampler::BatchSampler(std::span<const std::uint8_t> text, std::int64_t context,
                           std::uint64_t seed)
    : text_(text), context_(context), random_(seed, "batches") {
  check_text(text, context);
}

std::int64_t BatchSampler::start(std::int64_t sample) const {
  const std::uint64_t windows = text_.size() - static_cast<std::uint64_t>(context_);
  return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(sample), windows));
}

Batch BatchSampler::batch(Device& device, std::int64_t first_sample, std::int64_t count) const {
  if (first_sample < 0 || count < 0)
    fail(fmt::format("a batch of {} samples from {}: both must be 0 or more", count, first_sample));
  return gather(device, text_, count, context_,
                [&](std::int64_t b) { return start(first_sample + b); });
}

Batch even_windows(std::span<const std::uint8_t> text, std::int64_t context, std::int64_t count,
                   Device& device) {
  check_text(text, context);
  if (count < 1) fail(fmt::format("{} windows for validation, expected 1 or more", count));
  const std::int64_t last = static_cast<std::int64_t>(text.size()) - context - 1;
  return gather(device, text, count, context,
                [&](std::int64_t b) { return b * last / std::max<std::int64_t>(1, count - 1); });
}

}  // namespace aisc
