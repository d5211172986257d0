// Yours to write; from 08_moe/solution/experts.cpp (stub 299503eca7ba).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "08_moe/experts.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {
namespace {

// Expert e of a stacked value, gradient or bias.
View of_expert(const View& stacked, std::int64_t e) {
  const Shape& all = stacked.shape();
  const View one = stacked.rows(e, e + 1);
  return all.rank() == 3 ? one.reshaped({all[1], all[2]}) : one.reshaped({all[1]});
}

Parameter stacked(const std::string& name, const Shape& shape, int part, int parts, Init init,
                  bool decay) {
  Parameter p = split_parameter(name, shape, 0, part, parts, init, decay);
  // LAB 08.7: gradients of experts
  // An expert's gradient comes from the tokens of all ranks that send it any. They have been here
  // already. Which ranks hold the same expert, and have seen other tokens (Sync)?
  throw NotImplemented("lab 08.7: gradients of experts", __FILE__, __LINE__);
  // END LAB 08.7
  return p;
}

struct RowsOfExpert {
  std::int64_t expert;
  Range rows;
};
// Of those that have any.
std::vector<RowsOfExpert> busy(std::span<const std::int64_t> counts) {
  std::vector<RowsOfExpert> all;
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < std::ssize(counts); begin += counts[index(e)], ++e)
    if (counts[index(e)] > 0) all.push_back({e, {begin, begin + counts[index(e)]}});
  return all;
}

// Calls add(gradient of expert e, rows, into) for those that are busy; the first contribution of a
// step leaves 0 to the others.
template <class F>
void for_gradients(Parameter& p, std::span<const std::int64_t> counts, F add) {
  // LAB 08.7: gradients of experts
  // p.next_grad() is Overwrite for the first contribution of a step, to all experts of the stack.
  // busy(counts) are those with rows: {expert, rows}. What do the gradients of the others hold
  // before? p.grad().device().zero(view) sets to 0.
  throw NotImplemented("lab 08.7: gradients of experts", __FILE__, __LINE__);
  // END LAB 08.7
}

// dW += dy^T x, expert by expert, now or when pass.deferred runs.
void weight_grads(const Pass& pass, Parameter& weight, std::span<const std::int64_t> counts,
                  Tensor dy, Tensor x) {
  const auto products = [&weight](std::span<const std::int64_t> rows, const Tensor& left,
                                  const Tensor& right) {
    for_gradients(weight, rows, [&](View grad, const Range& r, ops::Into into) {
      ops::matmul(grad, left.rows(r.begin, r.end), right.rows(r.begin, r.end),
                  {.transpose = ops::Transpose::First, .into = into});
    });
  };
  if (!pass.deferred) return products(counts, dy, x);
  struct Held {
    std::vector<std::int64_t> counts;
    Tensor dy, x;
  };
  auto held =
      std::make_shared<Held>(Held{{counts.begin(), counts.end()}, std::move(dy), std::move(x)});
  pass.deferred->push([products, held] { products(held->counts, held->dy, held->x); });
}

void bias_grads(Parameter& bias, std::span<const std::int64_t> counts, const Tensor& dy) {
  for_gradients(bias, counts, [&](View grad, const Range& r, ops::Into into) {
    ops::add_bias_backward(grad, dy.rows(r.begin, r.end), into);
  });
}

}  // namespace

Experts::Experts(const Rank& rank, const std::string& name, const Sizes& z, int part, int parts)
    : rank_(rank), name_(name) {
  if (z.count % parts != 0)
    fail(fmt::format("{}: {} experts over {} ranks: expected a multiple of {}", name, z.count,
                     parts, parts));
  const auto weight = [&](const char* of, std::int64_t out, std::int64_t in, double stddev) {
    return stacked(name + of, {z.count, out, in}, part, parts, Init::normal(stddev), true);
  };
  const auto bias = [&](const char* of, std::int64_t out) {
    return stacked(name + of, {z.count, out}, part, parts, Init::constant(0), false);
  };
  fc_weight_ = weight(".fc.weight", z.hidden, z.width, 0.02);
  fc_bias_ = bias(".fc.bias", z.hidden);
  project_weight_ = weight(".project.weight", z.width, z.hidden, z.residual_stddev);
  project_bias_ = bias(".project.bias", z.width);
}

Tensor Experts::forward(Tensor x, std::span<const std::int64_t> counts, Saved& saved) const {
  const auto span = rank_.trace.span("product", name_);
  const std::int64_t N = x.shape()[0], C = fc_weight_.shape[2], hidden = fc_weight_.shape[1];
  Tensor z({N, hidden}, x.dtype(), x.device()), h({N, hidden}, x.dtype(), x.device());
  Tensor y({N, C}, x.dtype(), x.device());
  for (const auto& [e, r] : busy(counts)) {
    ops::matmul(h.rows(r.begin, r.end), x.rows(r.begin, r.end), of_expert(fc_weight_.value(), e),
                {.transpose = ops::Transpose::Second,
                 .bias = of_expert(fc_bias_.value(), e),
                 .before_gelu = z.rows(r.begin, r.end)});
    ops::matmul(y.rows(r.begin, r.end), h.rows(r.begin, r.end),
                of_expert(project_weight_.value(), e),
                {.transpose = ops::Transpose::Second, .bias = of_expert(project_bias_.value(), e)});
  }
  saved.push(std::move(x));
  saved.push(std::move(z));
  saved.push(std::move(h));
  return y;
}

Tensor Experts::backward(Tensor dy, std::span<const std::int64_t> counts, Saved& saved,
                         const Pass& pass) {
  const auto span = rank_.trace.span("product", name_);
  Tensor h = saved.pop();        // (N, 4C)
  const Tensor z = saved.pop();  // (N, 4C)
  Tensor x = saved.pop();        // (N, C)
  Tensor dz(z.shape(), z.dtype(), z.device()), dx(x.shape(), x.dtype(), x.device());
  for (const auto& [e, r] : busy(counts)) {
    ops::matmul(dz.rows(r.begin, r.end), dy.rows(r.begin, r.end),
                of_expert(project_weight_.value(), e), {.gelu_of = z.rows(r.begin, r.end)});
    ops::matmul(dx.rows(r.begin, r.end), dz.rows(r.begin, r.end), of_expert(fc_weight_.value(), e));
  }
  bias_grads(project_bias_, counts, dy);
  bias_grads(fc_bias_, counts, dz);
  weight_grads(pass, project_weight_, counts, std::move(dy), std::move(h));
  weight_grads(pass, fc_weight_, counts, std::move(dz), std::move(x));
  return dx;
}

}  // namespace aisc
