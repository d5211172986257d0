#include "13_vision/expert_head.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "13_vision/of_type.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"

namespace aisc {
namespace {

// Calls f(place among the images' elements, place among the tokens') for each element: image n,
// channel c, place p of H W.
template <class F>
void for_each_element(const Shape& images, F&& f) {
  const std::int64_t N = images[0], C = images[1], P = images[2] * images[3];
  // LAB 13.6: experts in the head
  // > All images are one run of memory, and so are all tokens. At which index among each does
  // > channel c of place p of image n stand?
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t c = 0; c < C; ++c)
      for (std::int64_t p = 0; p < P; ++p) f((n * C + c) * P + p, (n * P + p) * C + c);
  // END LAB 13.6
}

MoeLayer::Options options_of(std::int64_t channels, const GptExperts& experts) {
  return {.experts = experts, .width = channels, .hidden = 2 * channels, .residual_stddev = 0.02};
}

}  // namespace

Tensor tokens_of(const Tensor& images) {
  require_images("tokens of images", images);
  const Shape& s = images.shape();
  Tensor tokens({s[0], s[2] * s[3], s[1]}, images.dtype(), images.device());
  of_type(images.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const from = images.data<T>();
    T* const to = tokens.data<T>();
    for_each_element(s, [=](std::int64_t image, std::int64_t token) { to[token] = from[image]; });
  });
  return tokens;
}

Tensor images_of(const Tensor& tokens, const Shape& shape) {
  if (shape.rank() != 4)
    fail(fmt::format("images of tokens: images are {}, expected (N, C, H, W)", shape.to_string()));
  const Shape expected{shape[0], shape[2] * shape[3], shape[1]};
  if (tokens.shape() != expected)
    fail(fmt::format("images of tokens: tokens are {}, expected {} for images of {}",
                     tokens.shape().to_string(), expected.to_string(), shape.to_string()));
  Tensor images(shape, tokens.dtype(), tokens.device());
  require_images("images of tokens", images);
  of_type(tokens.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const from = tokens.data<T>();
    T* const to = images.data<T>();
    for_each_element(shape,
                     [=](std::int64_t image, std::int64_t token) { to[image] = from[token]; });
  });
  return images;
}

ExpertHead::ExpertHead(const Rank& rank, const std::string& name, std::int64_t channels,
                       const GptExperts& experts, Communicator& ranks)
    : Layer(rank, name), moe_(rank, name, options_of(channels, experts), expert_ranks(ranks)) {}

Tensor ExpertHead::forward(Tensor x, Saved& saved, const Pass& pass) const {
  // LAB 13.6: experts in the head
  // > moe_ takes tokens and gives as many; ops::add(y, a, b) adds tensors of one shape.
  Tensor y = images_of(moe_.forward(tokens_of(x), saved, pass), x.shape());
  ops::add(y, y, x);
  return y;
  // END LAB 13.6
}

Tensor ExpertHead::backward(Tensor dy, Saved& saved, const Pass& pass) {
  // LAB 13.6: experts in the head
  // > x went two ways, and both bring a gradient back.
  Tensor dx = images_of(moe_.backward(tokens_of(dy), saved, pass), dy.shape());
  ops::add(dx, dx, dy);
  return dx;
  // END LAB 13.6
}

std::vector<std::int64_t> expert_load(const Trace& trace, std::int64_t experts,
                                      Communicator& ranks) {
  std::vector<std::int64_t> load(index(experts));
  const auto events = nlohmann::json::parse(trace.to_chrome_json());
  for (const auto& event : events.at("traceEvents")) {
    if (event.value("ph", "") != "C") continue;
    for (const auto& [name, rows] : event.at("args").items())
      if (name.starts_with("expert "))
        load.at(std::stoul(name.substr(7))) += rows.get<std::int64_t>();
  }
  sum_of_all(ranks, load);  // comm: 8 bytes an expert
  return load;
}

}  // namespace aisc
