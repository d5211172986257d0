#include "04_sharding/scattered_gradients.h"

#include <fmt/format.h>

#include <algorithm>

#include "04_sharding/shards.h"
#include "common/core/error.h"

namespace aisc {

ScatteredGradients::ScatteredGradients(const Rank& rank, ParameterStore& store,
                                       const Options& options)
    : rank_(rank), store_(store), options_(options), written_(store.units().size()) {
  const int ranks = rank.world.size();
  if (options.bucket < 0 || options.bucket % ranks != 0)
    fail(fmt::format("sharding: buckets of {} elements over {} ranks, expected a multiple of them",
                     options.bucket, ranks));
  if (options.frees)
    shards_ = Tensor::zeros({store.layout().count() / ranks}, store.grad_dtype(), rank.device,
                            Purpose::Gradients);
}

void ScatteredGradients::begin() { written_.assign(written_.size(), false); }

void ScatteredGradients::bind(std::size_t unit) {
  if (!options_.frees || store_.has_grads(unit)) return;
  store_.bind_grads(unit, Tensor({store_.layout().units()[unit].range.count()}, store_.grad_dtype(),
                                 rank_.device, Purpose::Gradients));
}

View ScatteredGradients::shard(std::size_t unit) const {
  const int ranks = rank_.world.size();
  const Range own = own_range(store_.layout(), unit, ranks);
  if (options_.frees) return shards_.view().flat(own.begin, own.count());
  return store_.grads(unit).flat(rank_.world.rank() * own.count(), own.count());
}

void ScatteredGradients::scatter(std::size_t unit) {
  // LAB 04.2: reduce-scatter
  // > The unit's gradients are store_.grads(unit), and reduce(whole, to, into) launches their sum.
  // > shard(unit) and written_[unit] are as the header says; begin() sets the latter to false. At
  // > hand besides: store_.complete_grads(unit) makes 0 what no layer wrote to, and
  // > store_.unbind_grads(unit) takes the unit's memory from the store and returns it, which is due
  // > where options_.frees; sending_.in can hold it.
  finish();
  store_.complete_grads(unit);
  reduce(store_.grads(unit), shard(unit),
         written_[unit] ? ops::Into::Accumulate : ops::Into::Overwrite);
  written_[unit] = true;
  if (options_.frees) sending_.in = store_.unbind_grads(unit);
  // END LAB 04.2
}

// Steps: as the reduce-scatter's. Bytes sent per rank: (n - 1)/n of `whole`.
void ScatteredGradients::reduce(ConstView whole, View to, ops::Into into) {
  if (options_.bucket > 0 && options_.bucket < whole.count())
    return reduce_in_buckets(whole, to, into);
  const bool adds = into == ops::Into::Accumulate;
  if (adds) {
    sending_.out = Tensor({to.count()}, to.dtype(), rank_.device, Purpose::Communication);
    sending_.adds_to = to;
  }
  sending_.work = rank_.world.reduce_scatter(  // comm: the unit's gradients, to each rank its shard
      whole, adds ? sending_.out.view() : to);
}

// Bucket k holds elements k p .. of every rank's part, where p = bucket / ranks: they lie apart in
// the unit and are copied together.
void ScatteredGradients::reduce_in_buckets(ConstView whole, View to, ops::Into into) {
  const int ranks = rank_.world.size();
  const std::int64_t part = to.count(), most = options_.bucket / ranks;
  const Tensor in({options_.bucket}, to.dtype(), rank_.device, Purpose::Communication);
  const Tensor out({most}, to.dtype(), rank_.device, Purpose::Communication);
  // Before each turn the first `begin` elements of every rank's part are sums in `to`. One buffer
  // is used again and again: so each bucket is waited for before the next is copied together.
  for (std::int64_t begin = 0; begin < part; begin += most) {
    const std::int64_t n = std::min(most, part - begin);
    for (int r = 0; r < ranks; ++r)
      rank_.device.copy(in.view().flat(r * n, n), whole.flat(r * part + begin, n));
    const View arrives = into == ops::Into::Accumulate ? out.view().flat(0, n) : to.flat(begin, n);
    sending_.work = rank_.world.reduce_scatter(  // comm: a bucket of the unit's gradients
        in.view().flat(0, ranks * n), arrives);
    wait();
    if (into == ops::Into::Accumulate) ops::add(to.flat(begin, n), to.flat(begin, n), arrives);
  }
}

void ScatteredGradients::wait() {
  const auto span = rank_.trace.span("communication", "gradients");
  sending_.work.wait();
}

void ScatteredGradients::finish() {
  wait();
  if (sending_.adds_to) ops::add(sending_.adds_to, sending_.adds_to, sending_.out);
  sending_ = {};
}

}  // namespace aisc
