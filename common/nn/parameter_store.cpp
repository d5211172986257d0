#include "common/nn/parameter_store.h"

#include <utility>

#include "common/core/rng.h"

namespace aisc {
namespace {

// The global index of a parameter's local element: splitting dimension d into ranges leaves the
// dimensions before d (`outer`) as they are and shortens each run of the rest.
struct GlobalIndex {
  explicit GlobalIndex(const Parameter& p) {
    if (p.split_dim < 0) return;
    std::int64_t inner = 1;
    for (int d = p.split_dim + 1; d < p.shape.rank(); ++d) inner *= p.shape[d];
    local_run = p.shape[p.split_dim] * inner;
    global_run = p.global_shape[p.split_dim] * inner;
    offset = p.split_begin * inner;
  }
  std::uint64_t operator()(std::int64_t i) const {
    if (local_run == 0) return static_cast<std::uint64_t>(i);
    return static_cast<std::uint64_t>(i / local_run * global_run + i % local_run + offset);
  }
  std::int64_t local_run = 0, global_run = 0, offset = 0;
};

// Into `values` of the host.
template <class T>
void draw_normal(View values, const Parameter& p, std::uint64_t seed) {
  const Philox random(seed, p.name);
  const GlobalIndex global(p);
  T* value = values.data<T>();
  const std::int64_t count = p.shape.count();
  const auto drawn = static_cast<std::uint64_t>(p.init.drawn);  // -1: more than there can be
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i)
    value[i] = static_cast<T>(global(i) < drawn ? p.init.value * random.normal(global(i)) : 0.0);
}

}  // namespace

Parameter whole_parameter(std::string name, const Shape& shape, Init init, bool decay) {
  Parameter p;
  p.name = std::move(name);
  p.shape = p.global_shape = shape;
  p.init = init;
  p.decay = decay;
  return p;
}

ParameterStore::ParameterStore(Device& device, std::vector<Unit> units, const Options& options)
    : units_(std::move(units)), layout_(units_, options.ranks) {
  values_ = Tensor::zeros({layout_.count()}, options.value_dtype, device, Purpose::Parameters);
  if (options.gradients)
    grads_ = Tensor::zeros({layout_.count()}, options.grad_dtype, device, Purpose::Gradients);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::size_t i = 0; i < units_[u].parameters.size(); ++i) {
      Parameter& p = *units_[u].parameters[i];
      const FlatRange range = layout_.units()[u].parameters[i];
      p.value = values_.view().flat(range.begin, range.count()).reshaped(p.shape);
      if (options.gradients)
        p.grad = grads_.view().flat(range.begin, range.count()).reshaped(p.shape);
      p.has_grad = false;
      parameters_.push_back(&p);
    }
  }
}

void ParameterStore::initialize(std::uint64_t seed) {
  CpuDevice host;
  for (const Parameter* p : parameters_) {
    if (p->init.kind == Init::Kind::Constant) {
      ops::fill(p->value, p->init.value);
      continue;
    }
    Device& device = p->value.device();
    const Tensor drawn = device.is_host() ? Tensor() : Tensor(p->shape, p->value.dtype(), host);
    const View values = drawn ? drawn.view() : p->value;
    dispatch(values.dtype(), [&](auto type) { draw_normal<decltype(type)>(values, *p, seed); });
    if (drawn) device.copy(p->value, drawn);
  }
}

void ParameterStore::clear_grads() {
  for (Parameter* p : parameters_) p->has_grad = false;
}

void ParameterStore::complete_grads() {
  for (Parameter* p : parameters_)
    if (p->next_grad() == ops::Into::Overwrite) p->grad.device().zero(p->grad);
}

std::int64_t ParameterStore::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter* p : parameters_) count += p->shape.count();
  return count;
}

}  // namespace aisc
