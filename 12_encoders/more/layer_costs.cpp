#include "12_encoders/more/layer_costs.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "12_encoders/more/lstm.h"
#include "common/core/error.h"
#include "common/core/median.h"
#include "common/model/emulated_device.h"
#include "common/nn/encoder_core.h"
#include "common/nn/linear.h"
#include "common/nn/parameter_store.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

constexpr ops::MatmulOptions kByRows{.transpose = ops::Transpose::Second};

// Each token beside its neighbours, k in all: (1, T, k C) of x (1, T, C). What is outside of x is
// 0. A convolution is these windows by a matrix (C, k C): one product.
Tensor token_windows(const Tensor& x, std::int64_t taps) {
  const std::int64_t T = x.shape()[1], C = x.shape()[2], before = (taps - 1) / 2;
  const Tensor padded = Tensor::zeros({T + taps - 1, C}, x.dtype(), x.device());
  x.device().copy(padded.rows(before, before + T), as_rows(x));
  // Window t is rows t .. t + k - 1 of what is padded, one behind the other.
  const Tensor rows({T * taps}, DType::I32, x.device());
  if (x.device().kind() != DeviceKind::Meta)
    for (std::int64_t i = 0; i < T * taps; ++i)
      rows.data<std::int32_t>()[i] = static_cast<std::int32_t>(i / taps + i % taps);
  Tensor windows({1, T, taps * C}, x.dtype(), x.device());  // (1, T, k C)
  ops::embedding(windows.view().reshaped({T * taps, C}), padded, rows);
  return windows;
}

void check_sizes(const SequenceSizes& s) {
  if (s.tokens < 1 || s.width < 1 || s.taps < 1 || s.reach < 1 || s.tokens % s.reach != 0)
    fail(
        fmt::format("layer costs: n {}, d {}, k {}, r {}, expected each 1 or more, and r to "
                    "divide n",
                    s.tokens, s.width, s.taps, s.reach));
}

std::unique_ptr<Layer> make_layer(const Rank& rank, SequenceLayer layer, const SequenceSizes& s) {
  const std::int64_t d = s.width, heads = d % 64 == 0 ? d / 64 : 1;
  if (layer == SequenceLayer::Recurrent) return std::make_unique<Lstm>(rank, "lstm", d, d);
  if (layer == SequenceLayer::Convolution)
    return std::make_unique<Linear>(rank, "convolution", s.taps * d, d);
  return in_sequence(rank, "attention", std::make_unique<Linear>(rank, "qkv", d, 3 * d),
                     std::make_unique<EncoderCore>(rank, "core", heads),
                     std::make_unique<Linear>(rank, "project", d, d));
}

// A whole layer of which one sequence at a time is asked.
class OneLayer {
 public:
  OneLayer(const Rank& rank, SequenceLayer layer, const SequenceSizes& s)
      : taps_(layer == SequenceLayer::Convolution ? s.taps : 0),
        layer_(make_layer(rank, layer, s)),
        store_(rank.device, {{"layer", layer_->parameters()}}, {.gradients = false}),
        // Blocks of attention are samples that do not see each other.
        x_(Tensor::zeros(layer == SequenceLayer::Restricted
                             ? Shape{s.tokens / s.reach, s.reach, s.width}
                             : Shape{1, s.tokens, s.width},
                         DType::F32, rank.device)) {
    store_.initialize(1);
  }
  void run() const {
    Saved nothing = Saved::nothing();
    layer_->forward(taps_ > 0 ? token_windows(x_, taps_) : x_.share(), nothing,
                    {.training = false});
  }

 private:
  std::int64_t taps_;  // 0: no convolution
  std::unique_ptr<Layer> layer_;
  ParameterStore store_;
  Tensor x_;
};

// The product that the table counts, alone. On a device without numbers: nothing is computed.
void run_counted(Device& device, SequenceLayer layer, const SequenceSizes& s) {
  const std::int64_t n = s.tokens, d = s.width, r = s.reach;
  const auto tensor = [&](const Shape& shape) { return Tensor(shape, DType::F32, device); };
  switch (layer) {
    case SequenceLayer::Attention:  // scores = queries keys^T
      return ops::matmul(tensor({n, n}), tensor({n, d}), tensor({n, d}), kByRows);
    case SequenceLayer::Recurrent: {  // h_t = f(h_{t-1} weight^T + ...), n times
      const Tensor h = tensor({1, d}), next = tensor({1, d}), weight = tensor({d, d});
      for (std::int64_t t = 0; t < n; ++t) ops::matmul(next, h, weight, kByRows);
      return;
    }
    case SequenceLayer::Convolution:  // windows by taps
      return ops::matmul(tensor({n, d}), tensor({n, s.taps * d}), tensor({d, s.taps * d}), kByRows);
    case SequenceLayer::Restricted:  // the same scores in n / r blocks
      return ops::matmul(tensor({n / r, r, r}), tensor({n / r, r, d}), tensor({n / r, r, d}),
                         kByRows);
  }
}

}  // namespace

const char* name_of(SequenceLayer layer) {
  switch (layer) {
    case SequenceLayer::Attention:
      return "self-attention";
    case SequenceLayer::Recurrent:
      return "recurrent";
    case SequenceLayer::Convolution:
      return "convolution";
    case SequenceLayer::Restricted:
      return "restricted";
  }
  return "";
}

double table_multiplications(SequenceLayer layer, const SequenceSizes& sizes) {
  const auto n = static_cast<double>(sizes.tokens), d = static_cast<double>(sizes.width);
  switch (layer) {
    case SequenceLayer::Attention:
      return n * n * d;
    case SequenceLayer::Recurrent:
      return n * d * d;
    case SequenceLayer::Convolution:
      return static_cast<double>(sizes.taps) * n * d * d;
    case SequenceLayer::Restricted:
      return static_cast<double>(sizes.reach) * n * d;
  }
  return 0;
}

SequenceCost sequence_cost(SequenceLayer layer, const SequenceSizes& sizes,
                           const Machine& machine) {
  check_sizes(sizes);
  SequenceCost found;
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    const OneLayer whole(rank, layer, sizes);
    rank.device.listen([&](const OpCost& cost) {
      found.counted += cost.product ? cost.flops / 2 : 0;
      found.in_a_chain += cost.product ? 1 : 0;
    });
    run_counted(rank.device, layer, sizes);
    rank.device.listen(
        [&](const OpCost& cost) { found.whole += cost.product ? cost.flops / 2 : 0; });
    const double begin = rank.clock.now();
    whole.run();
    found.seconds = rank.clock.now() - begin;
    rank.device.listen(nullptr);
  });
  return found;
}

double median_round(const Clock& clock, int rounds, const std::function<void()>& run) {
  run();
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const double begin = clock.now();
    run();
    seconds.push_back(clock.now() - begin);
  }
  return median(std::move(seconds));
}

double sequence_seconds(const Rank& rank, SequenceLayer layer, const SequenceSizes& sizes,
                        int rounds) {
  check_sizes(sizes);
  const OneLayer whole(rank, layer, sizes);
  return median_round(rank.clock, rounds, [&] { whole.run(); });
}

}  // namespace aisc
