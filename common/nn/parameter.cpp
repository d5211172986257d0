#include "common/nn/parameter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

// The initial values of global elements first .. first + count, into host memory.
template <class T>
void draw_normal(T* to, const Parameter& p, std::int64_t first, std::int64_t count,
                 const Philox& random) {
  const auto drawn = static_cast<std::uint64_t>(p.init.drawn);  // -1: more than there can be
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(first + i);
    to[i] = static_cast<T>(index < drawn ? p.init.value * random.normal(index) : 0.0);
  }
}

}  // namespace

const View& Parameter::bound(const View& view, const char* what) const {
  if (!view) fail("parameter " + name + ": its " + what + " are not bound");
  return view;
}

Parameter whole_parameter(std::string name, const Shape& shape, Init init, bool decay) {
  Parameter p;
  p.name = std::move(name);
  p.shape = p.global_shape = shape;
  p.init = init;
  p.decay = decay;
  return p;
}

Parameter split_parameter(std::string name, const Shape& global_shape, int dim, int part, int parts,
                          Init init, bool decay) {
  Parameter p = whole_parameter(std::move(name), global_shape, init, decay);
  if (part < 0 || part >= parts)
    fail(fmt::format("parameter {}: part {} of {}", p.name, part, parts));
  if (global_shape[dim] % parts != 0)
    fail(fmt::format("parameter {}: {} along dimension {}, expected a multiple of {} parts", p.name,
                     global_shape[dim], dim, parts));
  p.shape = global_shape.with(dim, global_shape[dim] / parts);
  p.split_dim = dim;
  p.split_begin = part * p.shape[dim];
  return p;
}

std::vector<GlobalRun> global_runs(const Parameter& p, Range part) {
  const std::int64_t count = p.shape.count();
  if (part.begin < 0 || part.end < part.begin || part.end > count)
    fail(fmt::format("parameter {}: elements [{}, {}) of {}", p.name, part.begin, part.end, count));
  // A split along dimension d leaves the dimensions before d as they are and shortens each run of
  // the rest.
  std::int64_t inner = 1;
  for (int d = p.split_dim + 1; p.split_dim >= 0 && d < p.shape.rank(); ++d) inner *= p.shape[d];
  const bool split = p.split_dim >= 0 && p.shape != p.global_shape;
  const std::int64_t local =
      split ? p.shape[p.split_dim] * inner : std::max<std::int64_t>(count, 1);
  const std::int64_t global = split ? p.global_shape[p.split_dim] * inner : 0;
  std::vector<GlobalRun> runs;
  for (std::int64_t i = part.begin; i < part.end; i += runs.back().count)
    runs.push_back({i, i / local * global + i % local + p.split_begin * inner,
                    std::min(local - i % local, part.end - i)});
  return runs;
}

void draw(View out, const Parameter& p, std::int64_t begin, std::uint64_t seed) {
  if (p.init.kind == Init::Kind::Constant) return ops::fill(out, p.init.value);
  if (out.device().kind() == DeviceKind::Meta) return;  // there is nothing to fill
  CpuDevice host;
  const bool here = out.device().is_host();
  const Tensor drawn = here ? Tensor() : Tensor(out.shape(), out.dtype(), host);
  const View values = here ? out : drawn.view();
  const Philox random(seed, p.name);
  for (const GlobalRun& run : global_runs(p, {begin, begin + out.count()}))
    dispatch(out.dtype(), [&](auto type) {
      draw_normal(values.data<decltype(type)>() + (run.local - begin), p, run.global, run.count,
                  random);
    });
  if (!here) out.device().copy(out, drawn);
}

}  // namespace aisc
