// Yours to write; from 02_cpu_offload/solution/host_update.cpp (stub f63f0f77a1d1).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "02_cpu_offload/host_update.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"
#include "common/ops/ops.h"
#include "common/train/train_config.h"

namespace aisc {

HostUpdate::HostUpdate(const Rank& rank, std::vector<OptimizerSlice> slices,
                       const HostUpdateOptions& options)
    : Optimizer(std::move(slices),
                options.on == HostUpdateOptions::On::Host ? &host_of(rank).memory() : &rank.device),
      rank_(rank),
      options_(options),
      host_(host_of(rank)),
      worker_(options.on == HostUpdateOptions::On::Host ? host_.memory() : rank.device) {
  if (options.piece <= 0) fail("HostUpdate: pieces need elements");
  if (options.delayed && options.on == HostUpdateOptions::On::Device)
    fail("HostUpdate: an update on the device does not go on beside it");
  m_ = make_zeros(&worker_);
  v_ = make_zeros(&worker_);
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const OptimizerSlice& slice = slices_[i];
    const std::int64_t count = slice.weight.count();
    const bool there = &slice.weight.device() == &worker_;
    if (there && options.delayed)
      fail("HostUpdate: a delayed update would write weights that the next step reads");
    weights_.push_back(there ? Tensor()
                             : Tensor({count}, slice.weight.dtype(), worker_, Purpose::Parameters));
    kept_.push_back(options.delayed
                        ? Tensor({count}, slice.gradient.dtype(), worker_, Purpose::Gradients)
                        : Tensor());
    if (slice.parameter && slice.parameter->sign_step != 0) continue;  // moved where it is
    for (std::int64_t begin = 0; begin < count; begin += options.piece)
      pieces_.push_back({i, {begin, std::min(count, begin + options.piece)}});
  }
  resumed();
}

HostUpdate::~HostUpdate() {
  if (meanwhile_.valid()) meanwhile_.wait();
}

void HostUpdate::resumed() {
  late_ = is_delayed(steps());
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    if (!weights_[i]) continue;
    if (masters_[i])
      ops::cast(weights_[i], masters_[i]);
    else if (!late_)
      rank_.device.copy(weights_[i], slices_[i].weight);
  }
}

View HostUpdate::working(std::size_t slice) const {
  return weights_[slice] ? weights_[slice].view() : slices_[slice].weight;
}

// What of the state a piece's update reads and writes.
void HostUpdate::state_of(const Piece& piece, const std::function<void(ConstView)>& f) const {
  const std::size_t i = piece.slice;
  for (const Tensor* state : {&masters_[i], &m_[i], &v_[i]})
    if (*state) f(state->view().flat(piece.range.begin, piece.range.count()));
}

HostUpdate::Coming HostUpdate::bring(const Piece& piece) const {
  state_of(piece, [this](ConstView view) { host_.ahead(view); });
  const OptimizerSlice& slice = slices_[piece.slice];
  const std::int64_t count = piece.range.count();
  Coming coming{
      .staged = {}, .gradient = slice.gradient.flat(piece.range.begin, count), .copy = {}};
  if (&slice.gradient.device() == &worker_) return coming;
  coming.staged = Tensor({count}, slice.gradient.dtype(), worker_, Purpose::Gradients);
  const Queue queue = &worker_ == &rank_.device ? Queue::ToDevice : Queue::ToHost;
  coming.copy = rank_.device.copy_async(coming.staged, coming.gradient, queue);
  coming.gradient = coming.staged;
  return coming;
}

void HostUpdate::update(const Piece& piece, ConstView gradient, const OptimizerStep& options,
                        std::int64_t step) const {
  const std::size_t i = piece.slice;
  const std::int64_t begin = piece.range.begin, count = piece.range.count();
  const OptimizerSlice& slice = slices_[i];
  ops::adamw(working(i).flat(begin, count),
             masters_[i] ? masters_[i].view().flat(begin, count) : View(),
             m_[i].view().flat(begin, count), v_[i].view().flat(begin, count), gradient,
             {.learning_rate = options.learning_rate,
              .beta1 = options_.adamw.beta1,
              .beta2 = options_.adamw.beta2,
              .epsilon = options_.adamw.epsilon,
              .weight_decay = slice.decay ? options_.adamw.weight_decay : 0,
              .step = step,
              .gradient_scale = options.gradient_scale});
}

Work HostUpdate::send(const Piece& piece) const {
  state_of(piece, [this](ConstView view) { host_.behind(view); });
  const std::int64_t begin = piece.range.begin, count = piece.range.count();
  if (!weights_[piece.slice]) return Work();
  return rank_.device.copy_async(slices_[piece.slice].weight.flat(begin, count),
                                 weights_[piece.slice].view().flat(begin, count), Queue::ToDevice);
}

void HostUpdate::do_step(const OptimizerStep& options, std::int64_t step) {
  if (is_delayed(step))
    update_meanwhile(options, step);
  else
    update_now(options, step);
}

void HostUpdate::update_now(const OptimizerStep& options, std::int64_t step) {
  // LAB 02.6: piece by piece
  // All of pieces_ are updated, and all weights have arrived, when this returns. bring() begins
  // the copy of a piece's gradient (a Coming, whose `copy` is waited for), send() that of its
  // weights (a Work for moving_); the link carries one copy each way at a time, in the order
  // asked for. host_.begin() says that what the host computes next cannot begin earlier,
  // host_.wait() lets the rank wait for it.
  throw NotImplemented("lab 02.6: piece by piece", __FILE__, __LINE__);
  // END LAB 02.6
}

void HostUpdate::take_in() {
  if (meanwhile_.valid()) meanwhile_.get();
  host_.wait();
  for (const Piece& piece : pieces_) moving_.push_back(send(piece));
}

void HostUpdate::keep() {
  host_.begin();
  for (const Piece& piece : pieces_) {
    const std::int64_t begin = piece.range.begin, count = piece.range.count();
    const View gradient = slices_[piece.slice].gradient;
    Device& copies = &gradient.device() == &worker_ ? worker_ : rank_.device;
    moving_.push_back(copies.copy_async(kept_[piece.slice].view().flat(begin, count),
                                        gradient.flat(begin, count), Queue::ToHost));
  }
}

void HostUpdate::wait_for_all() {
  const auto span = rank_.trace.span("communication", "updated weights to the device");
  for (Work& work : moving_) work.wait();
  moving_.clear();
}

void HostUpdate::update_meanwhile(const OptimizerStep& options, std::int64_t step) {
  // LAB 02.7: one step late
  // begin_meanwhile(work) lets the host work while this function returns, and `work` may read
  // kept_ alone, since the next backward writes over the gradients. take_in() and keep() begin
  // copies, wait_for_all() waits for them. late_ is yours to keep: the header says what it means.
  throw NotImplemented("lab 02.7: one step late", __FILE__, __LINE__);
  // END LAB 02.7
}

// In virtual time the host's clock alone goes on. A new thread would take all cores: it gets as
// many as this one has. Beside a GPU one stays with this thread, which asks for kernels and waits
// for them without sleep: all would wait for the one that shares its core.
void HostUpdate::begin_meanwhile(std::function<void()> work) {
  host_.begin();
  if (rank_.clock.is_virtual()) return work();
  const int drives = rank_.device.kind() == DeviceKind::Cuda ? 1 : 0;
  const int threads = std::max(1, omp_get_max_threads() - drives);
  meanwhile_ = std::async(std::launch::async, [threads, work = std::move(work)] {
    omp_set_num_threads(threads);
    work();
  });
}

std::vector<Optimizer::State> HostUpdate::state() const {
  if (meanwhile_.valid()) meanwhile_.wait();
  std::vector<State> state;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const OptimizerSlice& slice = slices_[i];
    const auto add = [&](const Tensor& tensor, const char* what) {
      if (tensor) state.push_back({slice.name + "/" + what, tensor, slice.parameter, slice.begin});
    };
    add(masters_[i], "master");
    add(m_[i], "m");
    add(v_[i], "v");
    if (options_.delayed && !masters_[i]) add(weights_[i], "next");
  }
  return state;
}

StepParts update_on_host(StepParts parts, const HostUpdateOptions& options) {
  parts.optimizer = [options](const Rank& rank, Mesh* /*mesh*/, ParameterStore& /*store*/,
                              std::vector<OptimizerSlice> slices, const TrainConfig& config) {
    HostUpdateOptions own = options;
    own.adamw = {.beta1 = config.beta1, .beta2 = config.beta2, .weight_decay = config.weight_decay};
    return std::make_unique<HostUpdate>(rank, std::move(slices), own);
  };
  return parts;
}

}  // namespace aisc
