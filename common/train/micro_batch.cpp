#include "common/train/micro_batch.h"

#include <algorithm>
#include <utility>

#include "common/core/range.h"

namespace aisc {
namespace {

// x (B, T) -> (B, n).
Tensor part_of(const Tensor& x, const TokenPart& part) {
  const std::int64_t B = x.shape()[0], T = x.shape()[1], n = part.count;
  const std::int64_t of_first = std::min(n, part.runs.split);
  Tensor own({B, n}, x.dtype(), x.device());
  for (std::int64_t b = 0; b < B; ++b)
    for (const Range run : {Range{0, of_first}, Range{of_first, n}})
      if (run.count() > 0)
        x.device().copy(own.view().flat(b * n + run.begin, run.count()),
                        x.view().flat(b * T + part.runs.position(run.begin), run.count()));
  return own;
}

// Which of this part's tokens the one at position t is; -1: none.
std::int64_t token_at(std::int64_t t, const TokenPart& part) {
  const std::int64_t of_first = std::min(part.count, part.runs.split);
  const std::int64_t in_first = t - part.runs.first, in_second = t - part.runs.second;
  if (in_first >= 0 && in_first < of_first) return in_first;
  return in_second >= 0 && in_second < part.count - of_first ? of_first + in_second : -1;
}

Tensor copy_on(Device& device, const Tensor& x) {
  Tensor copy = Tensor::zeros(x.shape(), x.dtype(), device);
  device.copy(copy, x);
  return copy;
}

// Places b T + t of B samples, and their targets, as this part has them.
void pick_own(Tensor& picked, Tensor& targets, std::int64_t B, std::int64_t T,
              const TokenPart& part) {
  CpuDevice host;
  const Tensor places = copy_on(host, picked), labels = copy_on(host, targets);
  for (std::int64_t i = 0; i < places.count(); ++i) {
    std::int32_t& place = places.data<std::int32_t>()[i];
    const std::int64_t b = place / T, t = b < B ? token_at(place % T, part) : -1;
    place = static_cast<std::int32_t>(t < 0 ? B * part.count : b * part.count + t);
    if (t < 0) labels.data<std::int32_t>()[i] = -1;
  }
  picked = copy_on(picked.device(), places);
  targets = copy_on(targets.device(), labels);
}

}  // namespace

Batch batch_of_part(Batch whole, const TokenPart& part) {
  const std::int64_t B = whole.tokens.shape()[0], T = whole.tokens.shape()[1];
  whole.tokens = part_of(whole.tokens, part);
  if (whole.segments) whole.segments = part_of(whole.segments, part);
  if (whole.picked)
    pick_own(whole.picked, whole.targets, B, T, part);
  else
    whole.targets = part_of(whole.targets, part);
  return whole;
}

MicroBatch micro_batch_of(Batch batch, Pass pass) {
  const auto view = [](const Tensor& x) { return x ? ConstView(x) : ConstView(); };
  pass.key_lengths = view(batch.lengths);
  pass.segments = view(batch.segments);
  pass.picked = view(batch.picked);
  if (!pass.training) pass.terms = batch.term_count();
  MicroBatch micro{std::move(batch), pass};
  if (micro.batch.decoder) {
    micro.side = std::make_unique<SideInput>(SideInput{.tokens = micro.batch.decoder.share()});
    micro.pass.side = micro.side.get();
  }
  return micro;
}

}  // namespace aisc
