#include "12_encoders/more/lstm.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "common/core/error.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

using Index = std::int64_t;

template <class T>
T logistic(T z) {
  return 1 / (1 + std::exp(-z));
}

// One of T equal parts of a tensor by time, (B, columns).
View at_time(const Tensor& by_time, Index t) {
  const Shape& s = by_time.shape();
  return by_time.rows(t, t + 1).reshaped({s[1], s[2]});
}

// (A, B, C) -> (B, A, C): samples first or time first.
Tensor turned(const Tensor& x) {
  const Shape& s = x.shape();
  Tensor y({s[1], s[0], s[2]}, x.dtype(), x.device());
  ops::permute(y, x, {1, 0, 2, 3});
  return y;
}

// Charges the device for an operation on so many elements of h. False: there are no numbers.
bool charge_cell(const char* operation, double flops, double numbers, const ConstView& h) {
  Device& device = h.device();
  const auto count = static_cast<double>(h.count());
  if (device.wants_costs())
    device.charge({.operation = operation,
                   .flops = flops * count,
                   .bytes = numbers * count * static_cast<double>(size_of(h.dtype())),
                   .dtype = h.dtype()});
  return device.kind() != DeviceKind::Meta;
}

template <class F>
void of_dtype(DType dtype, F f) {
  return dtype == DType::F64 ? f(double{}) : f(float{});
}

// gates (B, 4H) hold the four sums and then what becomes of them: s(i), s(f), tanh(g), s(o). cell
// and hidden (B, H) are made of them and of the cell before.
void cell_forward(View gates, ConstView before, View cell, View hidden) {
  if (!charge_cell("lstm_cell", 15, 11, hidden)) return;
  const Index B = hidden.shape()[0], H = hidden.shape()[1];
  of_dtype(hidden.dtype(), [&](auto type) {
    using T = decltype(type);
    T *const all = gates.data<T>(), *const c = cell.data<T>(), *const h = hidden.data<T>();
    const T* const c_before = before.data<T>();
    cpu::parallel_rows(B, 32 * H, [=](Index b) {
      T *const i = all + 4 * b * H, *const f = i + H, *const g = f + H, *const o = g + H;
      for (Index j = 0, k = b * H; j < H; ++j, ++k) {
        i[j] = logistic(i[j]);
        f[j] = logistic(f[j]);
        g[j] = std::tanh(g[j]);
        o[j] = logistic(o[j]);
        c[k] = f[j] * c_before[k] + i[j] * g[j];
        h[k] = o[j] * std::tanh(c[k]);
      }
    });
  });
}

// Turns what cell_forward() made of the gates into the gradients of their sums. dhidden (B, H) is
// that of h_t; dcell the part of c_t's that comes from t + 1, and becomes c_{t-1}'s.
void cell_backward(View gates, ConstView before, ConstView cell, ConstView dhidden, View dcell) {
  if (!charge_cell("lstm_cell_backward", 23, 13, dhidden)) return;
  const Index B = dhidden.shape()[0], H = dhidden.shape()[1];
  of_dtype(dhidden.dtype(), [&](auto type) {
    using T = decltype(type);
    T *const all = gates.data<T>(), *const dc = dcell.data<T>();
    const T *const c_before = before.data<T>(), *const c = cell.data<T>();
    const T* const dh = dhidden.data<T>();
    cpu::parallel_rows(B, 32 * H, [=](Index b) {
      T *const i = all + 4 * b * H, *const f = i + H, *const g = f + H, *const o = g + H;
      for (Index j = 0, k = b * H; j < H; ++j, ++k) {
        const T bent = std::tanh(c[k]);
        const T d = dc[k] + dh[k] * o[j] * (1 - bent * bent);  // all of c_t's gradient
        dc[k] = d * f[j];
        const T di = d * g[j] * i[j] * (1 - i[j]), df = d * c_before[k] * f[j] * (1 - f[j]);
        const T dg = d * i[j] * (1 - g[j] * g[j]), d_o = dh[k] * bent * o[j] * (1 - o[j]);
        i[j] = di, f[j] = df, g[j] = dg, o[j] = d_o;
      }
    });
  });
}

void set_state(const std::string& name, const Tensor& given, View to) {
  if (given && given.shape() != to.shape())
    fail(fmt::format("{}: a state of shape {}, expected {}", name, given.shape().to_string(),
                     to.shape().to_string()));
  given ? to.device().copy(to, given) : to.device().zero(to);
}

Parameter gate_weights(const std::string& name, Index in, Index size) {
  const double stddev = 1 / std::sqrt(3 * static_cast<double>(size));
  return whole_parameter(name, {4 * size, in}, Init::normal(stddev), true);
}

}  // namespace

Lstm::Lstm(const Rank& rank, const std::string& name, std::int64_t in, std::int64_t hidden)
    : Layer(rank, name),
      in_(in),
      size_(hidden),
      input_(gate_weights(name + ".input", in, hidden)),
      hidden_(gate_weights(name + ".hidden", hidden, hidden)),
      bias_(whole_parameter(name + ".bias", {4 * hidden}, Init::constant(0), false)) {}

Tensor Lstm::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  return forward_from({}, std::move(x), nullptr, saved);
}

Tensor Lstm::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  LstmState dfirst;
  return backward_from(dy, {}, dfirst, saved);
}

Tensor Lstm::forward_from(const LstmState& first, Tensor x, LstmState* last, Saved& saved) const {
  const auto span = rank_.trace.span("lstm", name());
  const bool known = x.dtype() == DType::F32 || x.dtype() == DType::F64;
  if (x.device().kind() == DeviceKind::Cuda || !known)
    fail(fmt::format("{}: x is {} on {}, expected F32 or F64 on the CPU", name(),
                     name_of(x.dtype()), x.device().name()));
  if (x.shape().rank() != 3 || x.shape()[1] < 1 || x.shape()[2] != in_)
    fail(fmt::format("{}: x is {}, expected (B, T, {}) with T of 1 or more", name(),
                     x.shape().to_string(), in_));
  const Index B = x.shape()[0], T = x.shape()[1], H = size_;
  Device& device = x.device();
  Tensor in = turned(x);                            // (T, B, C): what a step reads is one run
  Tensor gates({T, B, 4 * H}, x.dtype(), device);   // (T, B, 4H)
  Tensor hidden({T + 1, B, H}, x.dtype(), device);  // (T + 1, B, H): h_{t-1} is number t
  Tensor cells({T + 1, B, H}, x.dtype(), device);   // (T + 1, B, H)
  set_state(name(), first.hidden, at_time(hidden, 0));
  set_state(name(), first.cell, at_time(cells, 0));
  ops::matmul(as_rows(gates), as_rows(in), input_.value(),
              {.transpose = ops::Transpose::Second, .bias = bias_.value()});
  // Before step t: numbers 0 .. t of hidden and cells are there, and gates have x's part.
  for (Index t = 0; t < T; ++t) {
    ops::matmul(at_time(gates, t), at_time(hidden, t), hidden_.value(),
                {.transpose = ops::Transpose::Second, .into = ops::Into::Accumulate});
    cell_forward(at_time(gates, t), at_time(cells, t), at_time(cells, t + 1),
                 at_time(hidden, t + 1));
  }
  Tensor y({B, T, H}, x.dtype(), device);  // (B, T, H)
  ops::permute(y, hidden.rows(1, T + 1), {1, 0, 2, 3});
  if (last)
    for (auto [to, from] : {std::pair{&last->hidden, &hidden}, {&last->cell, &cells}}) {
      *to = Tensor({B, H}, x.dtype(), device);
      device.copy(*to, at_time(*from, T));
    }
  for (Tensor* each : {&in, &gates, &hidden, &cells}) saved.push(std::move(*each));
  return y;
}

Tensor Lstm::backward_from(const Tensor& dy, const LstmState& dlast, LstmState& dfirst,
                           Saved& saved) {
  const auto span = rank_.trace.span("lstm", name());
  const Tensor cells = saved.pop(), hidden = saved.pop(), gates = saved.pop(), in = saved.pop();
  const Index T = in.shape()[0], B = in.shape()[1];
  Device& device = in.device();
  const Tensor dout = dy ? turned(dy) : Tensor();  // (T, B, H)
  Tensor dhidden({B, size_}, in.dtype(), device), dcell({B, size_}, in.dtype(), device);
  set_state(name(), dlast.hidden, dhidden);
  set_state(name(), dlast.cell, dcell);
  // Before step t: dhidden and dcell are what t + 1 and later add to the gradients of h_t and c_t,
  // and the gates from t + 1 on are the gradients of their sums. After it the same of t - 1.
  for (Index t = T; t-- > 0;) {
    if (dout) ops::add(dhidden, dhidden, at_time(dout, t));
    cell_backward(at_time(gates, t), at_time(cells, t), at_time(cells, t + 1), dhidden, dcell);
    ops::matmul(dhidden, at_time(gates, t), hidden_.value());
  }
  // The weights are the same in all steps, so their gradients are sums over time: one product each.
  ops::matmul(input_.grad(), as_rows(gates), as_rows(in),
              {.transpose = ops::Transpose::First, .into = input_.next_grad()});
  ops::matmul(hidden_.grad(), as_rows(gates), hidden.rows(0, T).reshaped({T * B, size_}),
              {.transpose = ops::Transpose::First, .into = hidden_.next_grad()});
  ops::add_bias_backward(bias_.grad(), as_rows(gates), bias_.next_grad());
  Tensor din(in.shape(), in.dtype(), device);  // (T, B, C)
  ops::matmul(as_rows(din), as_rows(gates), input_.value());
  dfirst = {std::move(dhidden), std::move(dcell)};
  return turned(din);
}

}  // namespace aisc
