// Trainers whose ranks divide the model in ways of their own, and what they save: for tests of
// checkpoints that many ranks write.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/run_checkpoint.h"
#include "common/core/system/files.h"
#include "common/ops/ops.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/message_of.h"
#include "tests/support/run_layout.h"
#include "tests/support/shard_slices.h"

namespace aisc {

// How the model is divided among the ranks: not at all; by shards of the flat buffer, which end
// inside parameters; by pieces of 50 elements, dealt round, so that a rank has many of a parameter;
// the same, but the last piece of each parameter is nobody's.
enum class Deal { Nothing, Shards, Pieces, PiecesWithGaps };

class DealtWeights final : public Reducer {
 public:
  DealtWeights(const Rank& rank, ParameterStore& store, Deal deal)
      : Reducer(rank, store), deal_(deal) {}

  bool divides() const override { return true; }
  std::vector<OptimizerSlice> slices() const override {
    std::vector<OptimizerSlice> mine;
    if (deal_ == Deal::Shards) {
      for (std::size_t u = 0; u < store().units().size(); ++u) {
        const Range range = store().layout().shard(u, self());
        for (OptimizerSlice& slice :
             slices_in(store().units()[u], store().layout().units()[u], range,
                       store().values().flat(range.begin, range.count()),
                       store().grads().flat(range.begin, range.count())))
          mine.push_back(std::move(slice));
      }
    } else {
      for_pieces([&](const Parameter& p, std::int64_t begin, std::int64_t count, int owner) {
        if (owner == self() && (deal_ == Deal::Pieces || begin + count < p.shape.count()))
          mine.push_back({p.name, p.value().flat(begin, count), p.grad().flat(begin, count),
                          p.decay, &p, begin});
      });
    }
    return mine;
  }
  void finish() override {
    store().complete_grads();
    rank().world.all_reduce(store().grads()).wait();
  }
  void updated() override { take_slices(); }
  void take_slices() override {
    if (deal_ == Deal::Shards) {
      for (std::size_t u = 0; u < store().units().size(); ++u) {
        const Range range = store().layout().shard(u, self());
        rank()
            .world.all_gather(store().values().flat(range.begin, range.count()), store().values(u))
            .wait();
      }
    } else {
      for_pieces([&](const Parameter& p, std::int64_t begin, std::int64_t count, int owner) {
        rank().world.broadcast(p.value().flat(begin, count), owner).wait();
      });
    }
  }

 private:
  int self() const { return rank().world.rank(); }
  // visit(parameter, begin, count, owner) of all pieces of all parameters.
  template <class F>
  void for_pieces(const F& visit) const {
    constexpr std::int64_t kPiece = 50;
    std::int64_t number = 0;
    for (const Parameter* p : store().parameters())
      for (std::int64_t begin = 0; begin < p->shape.count(); begin += kPiece)
        visit(*p, begin, std::min(kPiece, p->shape.count() - begin),
              static_cast<int>(number++ % rank().world.size()));
  }

  const Deal deal_;
};

inline StepParts dealt(Deal deal) {
  StepParts parts;
  if (deal == Deal::Nothing) return parts;
  parts.divided = true;
  parts.reducer = [deal](const Rank& rank, const Model&, ParameterStore& store) {
    return std::make_unique<DealtWeights>(rank, store, deal);
  };
  return parts;
}

// Has a state of each kind, and goes wrong as a test wants it.
class Momentum final : public Optimizer {
 public:
  struct Faults {
    std::function<void()> own = {};  // is called for own_state()
    std::int64_t common = 2;         // numbers that are no parameter's
    bool scalars = false;            // a number for each slice
  };
  Momentum(std::vector<OptimizerSlice> slices, int rank, Device& device, const Faults& faults)
      : Optimizer(std::move(slices)),
        m_(make_zeros()),
        common_(random_tensor({faults.common}, DType::F64, device, "common")),
        own_(random_tensor({2, 3}, DType::F32, device, "own" + std::to_string(rank))),
        scalar_(Tensor::zeros({1}, DType::F32, device)),
        faults_(faults) {}

  std::vector<State> state() const override {
    std::vector<State> all;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const OptimizerSlice& slice = slices_[i];
      all.push_back({slice.name + "/m", m_[i], slice.parameter, slice.begin});
      if (faults_.scalars)
        all.push_back({slice.name + "/scalar", scalar_, slice.parameter, slice.begin});
    }
    all.push_back({"momentum/common", common_, nullptr, 0});
    return all;
  }
  std::vector<State> own_state() const override {
    if (faults_.own) faults_.own();
    return {{"momentum/own", own_, nullptr, 0}};
  }

 private:
  void do_step(const OptimizerStep& options, std::int64_t /*step*/) override {
    for (std::size_t i = 0; i < slices_.size(); ++i)
      ops::sgd(slices_[i].weight, masters_[i], m_[i], slices_[i].gradient,
               {.learning_rate = options.learning_rate, .momentum = 0.5});
  }

  std::vector<Tensor> m_;
  Tensor common_, own_, scalar_;
  const Faults faults_;
};

inline StepParts with_momentum(Deal deal,
                               const std::function<Momentum::Faults(int rank)>& faults = {}) {
  StepParts parts = dealt(deal);
  parts.optimizer = [faults](const Rank& rank, Mesh*, ParameterStore&,
                             std::vector<OptimizerSlice> slices, const TrainConfig&) {
    const int self = rank.world.rank();
    return std::make_unique<Momentum>(std::move(slices), self, rank.device,
                                      faults ? faults(self) : Momentum::Faults());
  };
  return parts;
}

inline TrainConfig config_of(DType dtype = DType::F64) {
  TrainConfig config;
  config.model = odd_config(dtype);
  config.gradient_dtype = dtype == DType::BF16 ? DType::F32 : dtype;
  config.batch = 12;
  config.steps = 10;
  config.warmup_steps = 2;
  config.learning_rate = 3e-3;
  return config;
}

// What is nobody's business in this rank's store holds NaN: only what it has a slice of counts.
inline void poison_others(Trainer& trainer) {
  const View values = trainer.parameters().values();
  const Tensor copy = [&] {
    Tensor all(values.shape(), values.dtype(), values.device());
    values.device().copy(all, values);
    return all;
  }();
  std::memset(values.raw(), 0xff, values.bytes());
  for (const OptimizerSlice& slice : trainer.optimizer().slices()) {
    const auto offset =
        (static_cast<const char*>(slice.weight.raw()) - static_cast<const char*>(values.raw())) /
        static_cast<std::ptrdiff_t>(size_of(values.dtype()));
    values.device().copy(slice.weight, copy.view().flat(offset, slice.weight.count()));
  }
}

// A trainer on each rank, which `body` is called with.
using Body = std::function<void(const Rank&, Trainer&)>;
inline void on_ranks(int ranks, const TrainConfig& config, const std::function<StepParts()>& parts,
                     const Body& body) {
  launch(launch_options({.ranks = ranks}), [&](Rank rank) {
    Trainer trainer(rank, config, parts());
    body(rank, trainer);
  });
}
inline void on_ranks(int ranks, const TrainConfig& config, const StepParts& parts,
                     const Body& body) {
  on_ranks(
      ranks, config, [&] { return parts; }, body);
}

inline void take_steps(Trainer& trainer, int steps) {
  const std::vector<std::uint8_t> text = some_text();
  const BatchSampler data(text, trainer.config().model.context, trainer.config().seed);
  for (int i = 0; i < steps; ++i) trainer.step(data);
}

// Of all files of a folder, by name.
inline std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

// Names what differs, since files are long.
inline ::testing::AssertionResult same_files(const std::string& a, const std::string& b) {
  const auto x = contents(a), y = contents(b);
  for (const auto& [name, bytes] : x)
    if (!y.contains(name) || y.at(name) != bytes)
      return ::testing::AssertionFailure() << name << " of " << a << " is another in " << b;
  if (x.size() != y.size() || x.size() < 4)
    return ::testing::AssertionFailure() << x.size() << " and " << y.size() << " files";
  return ::testing::AssertionSuccess();
}

// Saves a run in `folder`. Collective; returns the path on every rank.
inline std::string save(const Rank& rank, const std::string& folder, const Trainer& trainer) {
  save_run(rank, folder, trainer, {.config = "{}"});
  return folder + "/step_00000" + std::to_string(trainer.steps_taken());
}

// A plain run of one rank, of two steps, saved in `folder`; its path.
inline std::string saved_plain(const std::string& folder, const TrainConfig& config) {
  std::string path;
  on_ranks(1, config, StepParts{}, [&](const Rank& rank, Trainer& trainer) {
    take_steps(trainer, 2);
    path = save(rank, folder, trainer);
  });
  return path;
}

// What each rank's call threw, after which all can still talk to each other.
inline std::vector<std::string> messages(int ranks, const std::function<void(const Rank&)>& call) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  launch(launch_options({.ranks = ranks}), [&](Rank rank) {
    said[static_cast<std::size_t>(rank.world.rank())] = message_of([&] { call(rank); });
    rank.world.barrier();
  });
  return said;
}

// Likewise of ranks that take up the checkpoint at `path`.
inline std::vector<std::string> said_of_restoring(int ranks, const TrainConfig& config,
                                                  const StepParts& parts, const std::string& path) {
  return messages(ranks, [&](const Rank& rank) {
    Trainer trainer(rank, config, parts);
    restore_run(rank, read_checkpoint(path), trainer);
  });
}

// All ranks threw the same, which has all of these in it.
inline ::testing::AssertionResult all_say(const std::vector<std::string>& said,
                                          const std::vector<std::string>& fragments) {
  for (const std::string& message : said) {
    if (message != said[0])
      return ::testing::AssertionFailure() << "\"" << said[0] << "\" and \"" << message << "\"";
    for (const std::string& fragment : fragments)
      if (message.find(fragment) == std::string::npos)
        return ::testing::AssertionFailure() << "no " << fragment << " in \"" << message << "\"";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace aisc
