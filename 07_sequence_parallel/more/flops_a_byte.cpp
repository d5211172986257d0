#include "07_sequence_parallel/more/flops_a_byte.h"

#include <functional>
#include <utility>

#include "common/core/rng.h"
#include "common/model/emulated_device.h"
#include "common/nn/layer_norm.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

// A block's forward, operation by operation, on a device that counts.
class Forward {
 public:
  Forward(Device& device, const Machine& machine, const GptConfig& config, std::int64_t samples)
      : device_(device),
        machine_(machine),
        dtype_(config.dtype),
        rate_(config.dropout),
        b_(samples),
        s_(config.context),
        h_(config.width),
        a_(config.heads) {}

  std::vector<KeptTensor> run() {
    // Each product, its bias not charged: x (b s, in) W^T.
    residual("block input", 4 * h_);
    norm("norm 1");
    product("q, k, v", h_, 3 * h_);
    core();
    mask("mask 1", {b_ * s_, h_});
    residual("norm 2 input", h_);
    norm("norm 2");
    product("GELU input", h_, 4 * h_);
    const Tensor hidden = rows(4 * h_);
    made("GELU output", {&hidden}, [&] { ops::gelu(hidden, hidden); });
    mask("mask 2", {b_ * s_, h_});
    return std::move(kept_);
  }

 private:
  Tensor rows(std::int64_t columns) const { return of({b_ * s_, columns}); }
  Tensor of(const Shape& shape) const { return Tensor(shape, dtype_, device_); }

  // `tensors` are kept, and `make` makes them.
  KeptTensor& made(std::string name, std::initializer_list<const Tensor*> tensors,
                   const std::function<void()>& make) {
    KeptTensor kept{.name = std::move(name)};
    for (const Tensor* tensor : tensors) kept.bytes += static_cast<double>(tensor->bytes());
    device_.listen([&](const OpCost& cost) {
      kept.flops += cost.flops;
      kept.seconds += machine_.seconds(cost);
    });
    make();
    device_.listen(nullptr);
    return kept_.emplace_back(std::move(kept));
  }

  void product(const char* name, std::int64_t in, std::int64_t out) {
    const Tensor x = rows(in), weight = of({out, in}), bias = of({out}), y = rows(out);
    made(name, {&y},
         [&] { ops::matmul(y, x, weight, {.transpose = ops::Transpose::Second, .bias = bias}); });
  }
  // A product's output behind its dropout, whose mask is kept, beside what went around it.
  void residual(const char* name, std::int64_t in) {
    const Tensor x = rows(in), weight = of({h_, in}), bias = of({h_}), y = rows(h_);
    const Tensor kept_mask({b_ * s_, h_}, DType::U8, device_);
    made(name, {&y}, [&] {
      ops::matmul(y, x, weight, {.transpose = ops::Transpose::Second, .bias = bias});
      ops::dropout_backward(y, y, kept_mask, rate_);
      ops::add(y, y, y);
    });
  }
  void norm(const char* name) {
    const Tensor x = rows(h_), y = rows(h_), weight = of({h_}), bias = of({h_});
    const DType type = statistics_of(dtype_);
    const Tensor mean({b_ * s_}, type, device_), rstd({b_ * s_}, type, device_);
    made(name, {&y, &mean, &rstd},
         [&] { ops::layer_norm(y, mean, rstd, x, weight, bias, LayerNorm::kEpsilon); });
  }
  KeptTensor& mask(const char* name, const Shape& shape) {
    const Tensor drawn(shape, DType::U8, device_), x = of(shape);
    return made(name, {&drawn}, [&] { ops::dropout(x, x, rate_, Philox(1, name), 0, drawn); });
  }
  void core() {
    const Shape matrices{b_ * a_, s_, s_}, heads{b_ * a_, s_, h_ / a_};
    const Tensor q = of(heads), k = of(heads), v = of(heads), out = of(heads);
    const Tensor p = of({b_, a_, s_, s_}), dropped = of({b_, a_, s_, s_});
    const Tensor kept_mask({b_, a_, s_, s_}, DType::U8, device_);
    made("softmax", {&p}, [&] {
      ops::matmul(p.view().reshaped(matrices), q, k, {.transpose = ops::Transpose::Second});
      ops::masked_softmax(p, p, 1, {});
    }).of_core = true;
    mask("their mask", {b_, a_, s_, s_}).of_core = true;
    made("behind it", {&dropped}, [&] {
      ops::dropout_backward(dropped, p, kept_mask, rate_);
    }).of_core = true;
    made("core output", {&out}, [&] { ops::matmul(out, dropped.view().reshaped(matrices), v); });
  }

  Device& device_;
  const Machine& machine_;
  const DType dtype_;
  const double rate_;
  const std::int64_t b_, s_, h_, a_;
  std::vector<KeptTensor> kept_;
};

}  // namespace

std::vector<KeptTensor> kept_tensors(Machine machine, const GptConfig& config,
                                     std::int64_t samples) {
  machine.capacity = 0;
  std::vector<KeptTensor> kept;
  launch(on_machine(machine, 1, {.meta = true}),
         [&](const Rank& rank) { kept = Forward(rank.device, machine, config, samples).run(); });
  return kept;
}

}  // namespace aisc
