// Weights of which several versions are in use at once, since a pipeline updates them while
// micro-batches are under way.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/comm/rank.h"
#include "common/nn/parameter.h"

namespace aisc {

// Which version of the weights a micro-batch computes with. Versions count updates, from 0.
enum class Weights {
  // The newest in forward, and the newest in backward: another one, where an update came between.
  // The gradient is then of no function. To see it go wrong.
  Newest,
  // Weight stashing: the newest in forward, and the same one in backward (PipeDream, arXiv
  // 1806.03377, section 3.3). Stages differ: of p, stage s (from 0) has seen p - 1 - s updates less
  // than micro-batches.
  Stashed,
  // Vertical sync (idem): on all stages the version that stage 0 has when the micro-batch enters.
  VerticalSync,
  // PipeDream-2BW (arXiv 2006.09503, section 3.1): the version before the newest when the batch
  // begins, so that two are enough: W(t+1) = W(t) - lr grad f(W(t-1)).
  TwoBuffered,
};

// The versions of one stage's weights on one rank. The newest is in the parameters' own memory,
// where the optimizer writes it; older ones are copies, kept as long as a micro-batch may need
// them.
class WeightVersions {
 public:
  // Of parameters with their values bound, as at every call. `stages` of the pipeline, and
  // micro-batches between two updates. All live longer than this.
  struct Options {
    Weights weights = Weights::Stashed;
    int stages = 1;
    int micro_batches = 1;
  };
  WeightVersions(const Rank& rank, std::vector<Parameter*> parameters, const Options& options);

  void begin_run();  // micro-batches count from 0 again; versions go on
  // The parameters' values become those that the micro-batch's forward, or backward, computes with.
  void use_for_forward(int micro_batch);
  void use_for_backward(int micro_batch);
  void done(int micro_batch);  // it needs its version no more
  // Runs the optimizer's step on the newest, of which a copy is kept if a micro-batch under way, or
  // one that is to come, computes with it.
  void update(const std::function<void()>& step);

  std::int64_t newest() const { return newest_; }
  // Versions in memory, the newest among them.
  int kept() const { return 1 + static_cast<int>(copies_.size()); }

 private:
  std::int64_t forward_version(int micro_batch) const;
  void bind(std::int64_t version);
  void drop_unused();
  bool is_needed(std::int64_t version) const;
  std::vector<Tensor> copy() const;  // of the values that are bound, one a parameter

  const Rank rank_;
  const std::vector<Parameter*> parameters_;
  const Options options_;
  std::vector<View> own_;                               // each parameter's memory in its store
  std::int64_t newest_ = 0, first_ = 0;                 // first_: the newest when the run began
  int next_ = 0;                                        // the micro-batch whose forward comes next
  std::map<std::int64_t, std::vector<Tensor>> copies_;  // by version: each parameter's values
  std::map<int, std::int64_t> under_way_;               // micro-batches and their versions
};

}  // namespace aisc
