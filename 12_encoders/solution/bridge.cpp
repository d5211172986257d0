#include "12_encoders/bridge.h"

#include <fmt/format.h>

#include <utility>

#include "12_encoders/cross_attention.h"
#include "common/core/error.h"

namespace aisc {
namespace {

Tensor taken_grad(const Pass& pass, const std::string& name) {
  SideInput& side = side_of(pass, name);
  if (!side.grad)
    fail("decoder: " + name + ": no gradient of the encoder's output, expected a decoder block's");
  return std::exchange(side.grad, Tensor());
}

// Of each sample x's rows, then zeros up to T, then those of `of_side`, where there is one.
Tensor put_together(const Tensor& x, const Tensor& of_side, std::int64_t T,
                    const std::string& name) {
  const std::int64_t B = x.shape()[0], n = x.shape()[1], C = x.shape()[2];
  const std::int64_t S = of_side ? of_side.shape()[1] : 0;
  if (n > T)
    fail(fmt::format("decoder: {}: {} tokens, expected at most {}, for which stages have room",
                     name, n, T));
  Tensor both = Tensor::zeros({B, T + S, C}, x.dtype(), x.device());
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t at = b * (T + S) * C;
    x.device().copy(both.view().flat(at, n * C), x.view().flat(b * n * C, n * C));
    if (S > 0)
      x.device().copy(both.view().flat(at + T * C, S * C), of_side.view().flat(b * S * C, S * C));
  }
  return both;
}

// Of each sample `count` rows from `first` on.
Tensor some_rows(const Tensor& both, std::int64_t first, std::int64_t count) {
  const std::int64_t B = both.shape()[0], rows = both.shape()[1], C = both.shape()[2];
  Tensor some({B, count, C}, both.dtype(), both.device());
  for (std::int64_t b = 0; b < B; ++b)
    both.device().copy(some.view().flat(b * count * C, count * C),
                       both.view().flat((b * rows + first) * C, count * C));
  return some;
}

}  // namespace

Tensor Bridge::forward(Tensor x, Saved& saved, const Pass& pass) const {
  SideInput& side = side_of(pass, name_);
  side.value = std::move(x);
  return embedding_->forward(side.tokens.share(), saved, pass);
}

Tensor Bridge::backward(Tensor dy, Saved& saved, const Pass& pass) {
  embedding_->backward(std::move(dy), saved, pass);
  return taken_grad(pass, name_);
}

Handover handover(const GptConfig& config, std::int64_t block) {
  if (block <= config.encoder_blocks) return Handover::Source;
  return block < config.layers ? Handover::Both : Handover::Target;
}

Tensor TakeApart::forward(Tensor both, Saved& /*saved*/, const Pass& pass) const {
  const auto span = rank_.trace.span("side input", name_);
  SideInput& side = side_of(pass, name_);
  const std::int64_t T = decoder_tokens_, S = both.shape()[1] - T;
  if (given_ == Handover::Both) side.value = some_rows(both, T, S);
  return some_rows(both, 0, side.tokens.shape()[1]);
}

Tensor TakeApart::backward(Tensor dx, Saved& /*saved*/, const Pass& pass) {
  const auto span = rank_.trace.span("side input", name_);
  const Tensor of_value = given_ == Handover::Both ? taken_grad(pass, name_) : Tensor();
  return put_together(dx, of_value, decoder_tokens_, name_);
}

Tensor Join::forward(Tensor x, Saved& /*saved*/, const Pass& pass) const {
  const auto span = rank_.trace.span("side input", name_);
  const SideInput& side = side_of(pass, name_);
  const Tensor value = given_ == Handover::Both ? side.value.share() : Tensor();
  return put_together(x, value, decoder_tokens_, name_);
}

Tensor Join::backward(Tensor dboth, Saved& /*saved*/, const Pass& pass) {
  const auto span = rank_.trace.span("side input", name_);
  SideInput& side = side_of(pass, name_);
  const std::int64_t T = decoder_tokens_, S = dboth.shape()[1] - T;
  if (given_ == Handover::Both) side.grad = some_rows(dboth, T, S);
  return some_rows(dboth, 0, side.tokens.shape()[1]);
}

}  // namespace aisc
