#include "10_model_compression/more/low_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

bool is_numbered(const Device& device) { return device.kind() != DeviceKind::Meta; }

// Sums are kept in F64: so columns are orthogonal to p's own rounding, however much of them is
// taken away.
template <class T>
void orthogonalize_columns(T* p, std::int64_t n, std::int64_t r) {
  constexpr double kRounding = 100 * std::numeric_limits<T>::epsilon();
  std::vector<std::vector<double>> columns(index(r), std::vector<double>(index(n)));
  const auto dot = [n](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < index(n); ++i) sum += a[i] * b[i];
    return sum;
  };
  for (std::int64_t j = 0; j < r; ++j) {
    std::vector<double>& own = columns[index(j)];
    for (std::int64_t i = 0; i < n; ++i) own[index(i)] = static_cast<double>(p[i * r + j]);
    const double before = std::sqrt(dot(own, own));
    // Columns 0 .. k - 1 have nothing left in this one: what is taken is column k's share alone.
    for (std::int64_t k = 0; k < j; ++k) {
      const std::vector<double>& other = columns[index(k)];
      const double share = dot(other, own);
      for (std::size_t i = 0; i < index(n); ++i) own[i] -= share * other[i];
    }
    const double after = std::sqrt(dot(own, own));
    const double factor = after > kRounding * before ? 1 / after : 0;
    for (std::int64_t i = 0; i < n; ++i) {
      own[index(i)] *= factor;
      p[i * r + j] = static_cast<T>(own[index(i)]);
    }
  }
}

Shape rows_and_columns(const Shape& shape) { return {shape.rows(), shape[-1]}; }

}  // namespace

void orthogonalize(View p) {
  const std::int64_t n = p.shape()[0], r = p.shape()[1];
  const auto passes = static_cast<double>(r * (r + 1)), rows = static_cast<double>(n);
  p.device().charge({.operation = "orthogonalize",
                     .flops = 2 * passes * rows,
                     .bytes = passes * rows * static_cast<double>(size_of(p.dtype())),
                     .dtype = p.dtype()});
  if (!is_numbered(p.device())) return;
  if (p.dtype() == DType::F64) return orthogonalize_columns(p.data<double>(), n, r);
  orthogonalize_columns(p.data<float>(), n, r);
}

LowRankKeeper::LowRankKeeper(std::unique_ptr<Optimizer> update, std::int64_t rank,
                             std::uint64_t seed)
    : Optimizer({}), update_(std::move(update)), seed_(seed) {
  if (rank < 1) fail(fmt::format("PowerSGD: rank {}, expected 1 or more", rank));
  slices_ = update_->slices();
  for (std::size_t i = 0; i < slices_.size(); ++i) masters_.push_back(update_->master(i).share());
  std::int64_t errors = 0, qs = 0;
  const auto each_matrix = [&](const auto& use) {
    for (const OptimizerSlice& slice : slices_) {
      const Parameter* p = slice.parameter;
      if (!p || p->shape.rank() < 2) continue;
      const Shape shape = rows_and_columns(p->shape);
      if (rank * (shape[0] + shape[1]) < shape.count()) use(slice, shape);
    }
  };
  each_matrix([&](const OptimizerSlice& slice, const Shape& shape) {
    const DType dtype = slice.gradient.dtype();
    if (dtype != DType::F32 && dtype != DType::F64)
      fail(
          fmt::format("PowerSGD: the gradient of {} is {}, expected F32 or F64: what is left for "
                      "the next step is less than a shorter type can add",
                      slice.name, name_of(dtype)));
    const Device& device = slice.gradient.device();
    if (is_numbered(device) && !device.is_host())
      fail(fmt::format("PowerSGD: gradients on {}, expected on the host", device.name()));
    errors += shape.count();
    qs += rank * shape[1];
  });
  if (errors == 0) return;
  const View first = slices_[0].gradient;
  errors_ = Tensor::zeros({errors}, first.dtype(), first.device(), Purpose::Optimizer);
  qs_ = Tensor::zeros({qs}, first.dtype(), first.device(), Purpose::Optimizer);
  std::int64_t error = 0, q = 0;  // where the next ones begin
  each_matrix([&](const OptimizerSlice& slice, const Shape& shape) {
    matrices_.push_back({slice.parameter, errors_.view().flat(error, shape.count()).reshaped(shape),
                         qs_.view().flat(q, rank * shape[1]).reshaped({shape[1], rank})});
    error += shape.count();
    q += rank * shape[1];
  });
}

const LowRank* LowRankKeeper::find(const Parameter& parameter) const {
  const auto found = std::find_if(matrices_.begin(), matrices_.end(), [&](const LowRank& matrix) {
    return matrix.parameter == &parameter;
  });
  return found == matrices_.end() ? nullptr : &*found;
}

void LowRankKeeper::draw_missing(const LowRank& matrix) const {
  if (!is_numbered(matrix.q.device())) return;
  const Philox random(seed_, "power_sgd/" + matrix.parameter->name,
                      static_cast<std::uint64_t>(steps()));
  dispatch(matrix.q.dtype(), [&](auto type) {
    using T = decltype(type);
    T* q = matrix.q.data<T>();
    const std::int64_t m = matrix.q.shape()[0], r = matrix.q.shape()[1];
    for (std::int64_t j = 0; j < r; ++j) {
      bool is_zero = true;
      for (std::int64_t i = 0; i < m; ++i) is_zero &= static_cast<double>(q[i * r + j]) == 0;
      for (std::int64_t i = 0; i < m && is_zero; ++i)
        q[i * r + j] = static_cast<T>(random.normal(static_cast<std::uint64_t>(i * r + j)));
    }
  });
}

std::vector<Optimizer::State> LowRankKeeper::own_state() const {
  std::vector<State> state = update_->own_state();
  if (!errors_) return state;
  state.push_back({"power_sgd/errors", errors_, nullptr, 0});
  state.push_back({"power_sgd/qs", qs_, nullptr, 0});
  return state;
}

void LowRankKeeper::do_step(const OptimizerStep& options, std::int64_t /*step*/) {
  update_->step(options);
}

}  // namespace aisc
