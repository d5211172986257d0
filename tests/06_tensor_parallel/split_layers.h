// Runs of a layer that is split over ranks, and what of it is compared with the whole layer on one:
// outputs, gradients and weights over several steps. Everything that is sent comes late.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "common/nn/layer.h"
#include "common/nn/linear.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/same_run.h"
#include "tests/support/tensors.h"

namespace aisc::split {

// Groups of `size` neighbours: who sums over all ranks in place of its group finds too much.
inline std::unique_ptr<Communicator> group_of(const Rank& rank, int size) {
  return rank.world.split(rank.world.rank() / size, rank.world.rank(), "tp");
}

// f(rank, tp) on `groups` groups of `size` ranks.
inline void on_groups(int size, const std::function<void(const Rank&, Communicator&)>& f,
                      int groups = 2) {
  launch(late(size * groups), [&](const Rank& rank) {
    const auto tp = group_of(rank, size);
    f(rank, *tp);
  });
}

// All that tp has done: so many sums, of so many bytes together, and nothing else.
inline void expect_all_reduces(Communicator& tp, std::int64_t calls, std::int64_t bytes) {
  const CommStats stats = tp.stats();
  EXPECT_EQ(stats[CommOp::AllReduce].calls, calls) << "sums over tp";
  EXPECT_EQ(stats[CommOp::AllReduce].payload_bytes, bytes) << "bytes that are summed over tp";
  std::int64_t all = 0;
  for (const CommStats::Row& row : stats.rows) all += row.calls;
  EXPECT_EQ(all, calls) << "operations of tp";
}

// Values of a parameter by global index, so that all splits have the same. Biases and norms start
// at 0 and 1, where wrong gradients can hide.
inline void move_a_little(const Parameter& p) {
  std::vector<double> values = to_doubles(p.value());
  const Philox random(7, p.name + " of split layers");
  for (const GlobalRun& run : global_runs(p, {0, p.shape.count()}))
    for (std::int64_t i = 0; i < run.count; ++i)
      values[static_cast<std::size_t>(run.local + i)] +=
          0.1 * random.normal(static_cast<std::uint64_t>(run.global + i));
  write_doubles(p.value(), values);
}

// A layer with its parameters in F64.
struct Owned {
  explicit Owned(const Rank& rank, std::unique_ptr<Layer> made, std::uint64_t seed = 3)
      : layer(std::move(made)),
        store(rank.device, {{"layer", layer->parameters()}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    store.initialize(seed);
  }
  std::unique_ptr<Layer> layer;
  ParameterStore store;
};

using MakeLayer = std::function<std::unique_ptr<Layer>(const Rank&, Communicator& tp)>;

// Whether a tensor's last dimension is split over the ranks.
enum class Columns { Whole, Split };

struct LayerCase {
  MakeLayer make = {};
  Shape input = {}, output = {};  // of the whole
  Columns input_is = Columns::Whole, output_is = Columns::Whole;
  std::int64_t words = 0;  // if any: the input is tokens, below that, and has no gradient
  Pass pass = {};
  bool deferred = false;  // weight gradients
};

// The same with the whole linear layer.
inline LayerCase serial(LayerCase c) {
  const std::int64_t in = c.input[-1], out = c.output[-1];
  c.make = [=](const Rank& rank, Communicator&) {
    return std::make_unique<Linear>(rank, "layer", in, out, 0.3);
  };
  return c;
}

// The parameters that `split` begins with are to the bit those that one rank makes of `whole`.
inline void expect_serial_values(const LayerCase& whole, const LayerCase& split,
                                 const std::vector<int>& sizes) {
  const auto values = [](int size, const LayerCase& c) {
    RunRecord record;
    std::mutex mutex;
    on_groups(size, [&](const Rank& rank, Communicator& tp) {
      Owned owned(rank, c.make(rank, tp), 11);
      owned.store.complete_grads();
      RunRecord gathered = gather_whole(rank, owned.store.parameters());
      const std::lock_guard lock(mutex);
      record = std::move(gathered);
    });
    return record.weights;
  };
  const auto one = values(1, whole);
  for (const int size : sizes) EXPECT_EQ(values(size, split), one) << size << " ranks";
}

// Columns of rank r of t: what is its own of a whole tensor.
inline std::vector<double> own_columns(const std::vector<double>& whole, std::int64_t width, int r,
                                       int t) {
  std::vector<double> own;
  const std::int64_t part = width / t;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::int64_t column = static_cast<std::int64_t>(i) % width;
    if (column / part == r) own.push_back(whole[i]);
  }
  return own;
}

// A tensor that all runs have, or this rank's columns of it.
inline Tensor drawn_tensor(const Rank& rank, Communicator& tp, const Shape& shape, Columns is,
                           const std::string& name) {
  Tensor whole = random_tensor(shape, DType::F64, rank.device, name);
  if (is == Columns::Whole) return whole;
  return from_doubles(own_columns(to_doubles(whole), shape[-1], tp.rank(), tp.size()),
                      shape.with(-1, shape[-1] / tp.size()), DType::F64, rank.device);
}

// What the ranks have of tensors, put together; the first group's ranks come first.
class Wholes {
 public:
  void add(const std::string& name, const Rank& rank, Communicator& tp, const Tensor& x,
           const Shape& shape, Columns is) {
    const std::vector<double> values = to_doubles(x);
    const std::lock_guard lock(mutex_);
    ASSERT_EQ(x.count() * (is == Columns::Split ? tp.size() : 1), shape.count())
        << name << ": elements on rank " << rank.world.rank();
    std::vector<double>& whole = tensors_[name];
    const bool first = whole.empty();
    whole.resize(static_cast<std::size_t>(shape.count()));
    if (is == Columns::Whole) {
      if (!first && whole != values) {
        ADD_FAILURE() << name << ": rank " << rank.world.rank()
                      << " has other bits than another rank, and all should have the same";
      }
      whole = values;
      return;
    }
    const std::int64_t width = shape[-1], part = width / tp.size();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / part;
      const auto column = static_cast<std::int64_t>(i) % part + tp.rank() * part;
      whole[static_cast<std::size_t>(row * width + column)] = values[i];
    }
  }
  const std::map<std::string, std::vector<double>>& tensors() const { return tensors_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<double>> tensors_;
};

// Two steps of forward, backward and SGD with momentum. Outputs and dx of every step are in the
// record beside the gradients of the last.
inline RunRecord run_layer(const LayerCase& c, int t, int groups = 2) {
  Wholes wholes;
  RunRecord record;
  std::mutex mutex;
  on_groups(
      t,
      [&](const Rank& rank, Communicator& tp) {
        Owned owned(rank, c.make(rank, tp));
        for (const Parameter* p : owned.store.parameters()) move_a_little(*p);
        Sgd sgd(slices_of(owned.store.parameters()), {.momentum = 0.9, .weight_decay = 0.1});
        for (int step = 0; step < 2; ++step) {
          Pass pass = c.pass;
          pass.step += static_cast<std::uint64_t>(step);
          DeferredGrads deferred;
          if (c.deferred) pass.deferred = &deferred;
          Saved saved;
          owned.store.clear_grads();
          const std::string in_step = fmt::format(" of step {}", step);
          const Tensor y = owned.layer->forward(
              c.words == 0 ? drawn_tensor(rank, tp, c.input, c.input_is, "x" + in_step)
                           : ids_tensor(random_ids(c.input.count(), c.words, "tokens" + in_step),
                                        rank.device)
                                 .reshaped(c.input),
              saved, pass);
          wholes.add("output" + in_step, rank, tp, y, c.output, c.output_is);
          // Shared, as in a residual connection: the layer must leave it alone.
          const Tensor dy = drawn_tensor(rank, tp, c.output, c.output_is, "dy" + in_step);
          const Tensor before = dy.clone();
          const Tensor dx = owned.layer->backward(dy.share(), saved, pass);
          EXPECT_TRUE(same_bits(dy, before)) << "backward changed a dy that others hold";
          EXPECT_EQ(saved.size(), 0u) << "backward pops what forward pushed";
          if (c.words == 0) wholes.add("dx" + in_step, rank, tp, dx, c.input, c.input_is);
          deferred.run_all();
          sgd.step({.learning_rate = 0.5});
        }
        RunRecord whole = gather_whole(rank, owned.store.parameters());
        const std::lock_guard lock(mutex);
        record = std::move(whole);
      },
      groups);
  record.gradients.insert(wholes.tensors().begin(), wholes.tensors().end());
  return record;
}

// `split` on groups of so many ranks leaves what `whole` leaves on one.
inline void expect_serial(const LayerCase& whole, const LayerCase& split,
                          const std::vector<int>& sizes, int groups = 2) {
  const RunRecord one = run_layer(whole, 1, 1);
  for (const int t : sizes)
    EXPECT_TRUE(same_run(one, run_layer(split, t, groups), kSameRunF64))
        << t << " ranks, " << split.input.to_string() << " to " << split.output.to_string();
}

// The same of linear layers whose sizes are drawn; t divides the outputs, or inputs that are split.
inline void expect_serial_for_drawn_sizes(
    const char* name, Columns input_is,
    const std::function<LayerCase(std::int64_t in, std::int64_t out, const Shape& rows)>& case_of) {
  for (const int t : {2, 3, 7}) {
    const auto size = [&](const char* what, std::int64_t most) {
      return drawn(fmt::format("{} of {} on {} ranks", what, name, t), 1, most);
    };
    const std::int64_t whole = size("columns", 20), split = t * size("split columns", 6);
    const Shape rows{size("samples", 3), size("tokens", 5)};
    const LayerCase c =
        input_is == Columns::Split ? case_of(split, whole, rows) : case_of(whole, split, rows);
    expect_serial(serial(c), c, {t});
  }
}

}  // namespace aisc::split
