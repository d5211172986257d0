#include "common/data/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/core/error.h"

namespace aisc {
namespace {

void check_tokens(const TokenView& tokens, std::int64_t context) {
  if (context < 1) fail(fmt::format("the context is {} tokens, expected 1 or more", context));
  if (tokens.size() < context + 1)
    fail(fmt::format(
        "the text is too short: found {} tokens, expected {} for one window: a context of {} and "
        "the token after it",
        tokens.size(), context + 1, context));
}

// The windows of T tokens that begin at start(0) .. start(B - 1), put together on the host.
template <class Start>
Batch gather(Device& device, const TokenView& text, std::int64_t B, std::int64_t T, Start start) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(B * T));  // (B, T)
  std::vector<std::int32_t> targets(tokens.size());                   // (B, T)
  std::vector<std::int32_t> window(static_cast<std::size_t>(T + 1));
  for (std::int64_t b = 0; b < B; ++b) {
    text.copy(start(b), T + 1, window.data());
    std::copy_n(window.begin(), T, tokens.begin() + b * T);
    std::copy_n(window.begin() + 1, T, targets.begin() + b * T);
  }
  CpuDevice host;
  const Shape shape{B, T};
  Batch batch{Tensor(shape, DType::I32, device), Tensor(shape, DType::I32, device),
              static_cast<double>(B * T)};
  device.copy(batch.tokens, ConstView(tokens.data(), shape, DType::I32, host));
  device.copy(batch.targets, ConstView(targets.data(), shape, DType::I32, host));
  return batch;
}

// A batch of what `each` makes of this one's tensors.
template <class Each>
Batch changed(const Batch& batch, Each each) {
  return {each(batch.tokens),   each(batch.targets), batch.terms,        each(batch.lengths),
          each(batch.segments), each(batch.picked),  each(batch.decoder)};
}

}  // namespace

Batch Batch::share() const {
  return changed(*this, [](const Tensor& x) { return x.share(); });
}

Batch Batch::copy_to(Device& device, Purpose purpose) const {
  return changed(*this, [&](const Tensor& x) {
    if (!x) return Tensor();
    Tensor copy(x.shape(), x.dtype(), device, purpose);
    device.copy(copy, x);
    return copy;
  });
}

BatchSampler::BatchSampler(TokenView tokens, std::int64_t context, std::uint64_t seed)
    : tokens_(tokens), context_(context), random_(seed, "batches") {
  check_tokens(tokens, context);
}

std::int64_t BatchSampler::start(std::int64_t sample) const {
  const std::uint64_t windows = static_cast<std::uint64_t>(tokens_.size() - context_);
  return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(sample), windows));
}

Batch BatchSampler::batch(Device& device, std::int64_t first_sample, std::int64_t count) const {
  if (first_sample < 0 || count < 0)
    fail(fmt::format("a batch of {} samples from {}: both must be 0 or more", count, first_sample));
  return gather(device, tokens_, count, context_,
                [&](std::int64_t b) { return start(first_sample + b); });
}

BlankWindows::BlankWindows(std::int64_t context)
    : zeros_(std::make_shared<const std::vector<std::uint8_t>>(
          static_cast<std::size_t>(std::max<std::int64_t>(context, 0) + 1))),
      windows_(*zeros_, context, 0) {}

EvenWindows::EvenWindows(TokenView tokens, std::int64_t context, std::int64_t count)
    : tokens_(tokens), context_(context), count_(count) {
  check_tokens(tokens, context);
  if (count < 1) fail(fmt::format("{} windows for validation, expected 1 or more", count));
}

Batch EvenWindows::batch(Device& device, std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first + count > count_)
    fail(fmt::format("windows {} to {} of {} for validation", first, first + count, count_));
  const std::int64_t last = tokens_.size() - context_ - 1;
  return gather(device, tokens_, count, context_, [&](std::int64_t b) {
    return (first + b) * last / std::max<std::int64_t>(1, count_ - 1);
  });
}

Batch even_windows(TokenView tokens, std::int64_t context, std::int64_t count, Device& device) {
  return EvenWindows(tokens, context, count).batch(device, 0, count);
}

}  // namespace aisc
