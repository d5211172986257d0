// A search over clipped ranges, and the inputs that say which columns matter.
#include "10_model_compression/more/calibrate.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc {
namespace {

// The squared error of each scale: (scale_rows * groups).
std::vector<double> errors_of(ConstView weight, const Codes& codes, ConstView columns) {
  const ScaleLayout layout = codes.layout();
  if (weight.shape() != codes.shape)
    fail(fmt::format("calibrate: the weight is {}, the codes are of a weight {}",
                     weight.shape().to_string(), codes.shape.to_string()));
  if (columns && columns.count() != layout.columns)
    fail(fmt::format("calibrate: {} factors of columns, the weight has {} columns", columns.count(),
                     layout.columns));
  CpuDevice host;
  const Tensor numbers(weight.shape(), DType::F32, host);
  dequantize(numbers, codes);
  const float* factors = columns ? columns.data<float>() : nullptr;
  std::vector<double> errors(index(layout.scale_rows * layout.groups));
  dispatch(weight.dtype(), [&](auto type) {
    const auto* w = weight.data<decltype(type)>();
    for (std::int64_t row = 0; row < layout.rows; ++row)
      for (std::int64_t g = 0; g < layout.groups; ++g) {
        double sum = 0;
        for (std::int64_t i = layout.begin(g); i < layout.end(g); ++i) {
          const std::int64_t at = row * layout.columns + i;
          const double off = static_cast<double>(cpu::widen(w[at])) - numbers.data<float>()[at];
          sum += (factors ? factors[i] : 1) * off * off;
        }
        errors[index(layout.first(row) + g)] += sum;
      }
  });
  return errors;
}

}  // namespace

double squared_error(ConstView weight, const Codes& codes, ConstView columns) {
  double sum = 0;
  for (const double error : errors_of(weight, codes, columns)) sum += error;
  return sum;
}

Tensor best_clips(ConstView weight, const Quantization& how, Device& device, ConstView columns) {
  CpuDevice host;
  const ScaleLayout layout = scale_layout(weight.shape(), how);
  const Shape scales{layout.scale_rows, layout.groups};
  Tensor best(scales, DType::F32, device, Purpose::Workspace);
  const Tensor tried(scales, DType::F32, host, Purpose::Workspace);
  std::vector<double> least(index(scales.count()), std::numeric_limits<double>::infinity());
  for (int percent = 100; percent >= 30; percent -= 5) {
    const float clip = static_cast<float>(percent) / 100;
    ops::fill(tried, static_cast<double>(clip));
    const std::vector<double> errors =
        errors_of(weight, quantize(weight, how, host, tried), columns);
    for (std::size_t i = 0; i < errors.size(); ++i)
      if (errors[i] < least[i]) {
        least[i] = errors[i];
        best.data<float>()[i] = clip;
      }
  }
  return best;
}

void InputSquares::add(const std::string& weight, ConstView x) {
  const std::int64_t N = x.shape()[0], I = x.shape()[1];
  Sums& sums = sums_[weight];
  sums.squares.resize(index(I));
  dispatch(x.dtype(), [&](auto type) {
    const auto* values = x.data<decltype(type)>();
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t i = 0; i < I; ++i) {
        const auto value = static_cast<double>(cpu::widen(values[n * I + i]));
        sums.squares[index(i)] += value * value;
      }
  });
  sums.rows += static_cast<double>(N);
}

Tensor InputSquares::mean_squares(const std::string& weight, Device& device) const {
  const auto found = sums_.find(weight);
  if (found == sums_.end())
    fail(fmt::format("calibrate: no batch came to {}, expected one or more", weight));
  const Sums& sums = found->second;
  Tensor means({std::ssize(sums.squares)}, DType::F32, device, Purpose::Workspace);
  for (std::size_t i = 0; i < sums.squares.size(); ++i)
    means.data<float>()[i] = static_cast<float>(sums.squares[i] / sums.rows);
  return means;
}

namespace {

class WatchedLinear final : public Layer {
 public:
  WatchedLinear(const Rank& rank, std::unique_ptr<Layer> inner, InputSquares& into)
      : Layer(rank, inner->name()), inner_(std::move(inner)), into_(into) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    into_.add(name_ + ".weight", as_rows(x));
    return inner_->forward(std::move(x), saved, pass);
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    return inner_->backward(std::move(dy), saved, pass);
  }
  std::vector<Parameter*> parameters() override { return inner_->parameters(); }
  std::vector<Unit> units() override { return inner_->units(); }

 private:
  std::unique_ptr<Layer> inner_;
  InputSquares& into_;
};

}  // namespace

GptParts watch_inputs(GptParts parts, InputSquares& into) {
  for (auto* make : {&parts.column, &parts.row})
    *make = [of = std::move(*make), &into](const GptParts::Wanted& w,
                                           const GptParts::LinearSizes& sizes) {
      return std::unique_ptr<Layer>(std::make_unique<WatchedLinear>(w.rank, of(w, sizes), into));
    };
  return parts;
}

}  // namespace aisc
