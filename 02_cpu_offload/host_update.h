// The optimizer on the host: its state never comes to the device, which computes forward and
// backward alone (ZeRO-Offload, Ren et al., arXiv 2101.06840).
#pragma once

#include <functional>
#include <future>
#include <vector>

#include "common/model/host.h"
#include "common/optim/optimizer.h"
#include "common/train/step_parts.h"

namespace aisc {

struct HostUpdateOptions {
  AdamW::Options adamw = {};
  // The device: of gradients that lie on the host, to compare with (section 3.2, the second row of
  // the paper's table).
  enum class On { Host, Device } on = On::Host;
  std::int64_t piece = 1 << 22;  // elements that are copied and updated at a time
  // Delayed parameter update (section 5.2): the host updates while the device computes the next
  // step, whose weights therefore lack this step's update. Not in the first steps, which move
  // weights most.
  bool delayed = false;
  std::int64_t delay_after = 0;
};

// AdamW of slices whose weights and gradients lie anywhere, bit by bit that of AdamW. In BF16 the
// device keeps, in bytes of a parameter, with everything there 16; 14 with gradients on the host;
// 4 with the update there, and 2 with both. Over the link go 2 for the gradient and 2 for the
// weight in a step, whatever the micro-batches where gradients stay on the device.
//
// A piece's gradient comes while the one before is updated, and its weights go while the next one
// is: with pieces that take g, u and w seconds a step is as long as the longest of three, and
// begins and ends with a piece of the others.
class HostUpdate final : public Optimizer {
 public:
  HostUpdate(const Rank& rank, std::vector<OptimizerSlice> slices,
             const HostUpdateOptions& options);
  ~HostUpdate() override;

  // Master copies and moments; of updates that are delayed, where weights have no master, the
  // weights that the device has one step later: "NAME/next".
  std::vector<State> state() const override;

 private:
  struct Piece {
    std::size_t slice;
    Range range;  // of the slice
  };
  // A piece's gradient on its way to where the update is.
  struct Coming {
    Tensor staged;  // empty: it is there already
    ConstView gradient;
    Work copy;
  };

  void do_step(const OptimizerStep& options, std::int64_t step) override;
  void resumed() override;
  bool is_delayed(std::int64_t step) const {
    return options_.delayed && step > options_.delay_after;
  }
  void update_now(const OptimizerStep& options, std::int64_t step);
  void update_meanwhile(const OptimizerStep& options, std::int64_t step);
  void take_in();       // what was updated meanwhile, on its way to the device
  void keep();          // this step's gradients, on their way to `kept_`
  void wait_for_all();  // of these
  void state_of(const Piece& piece, const std::function<void(ConstView)>& f) const;
  Coming bring(const Piece& piece) const;
  void update(const Piece& piece, ConstView gradient, const OptimizerStep& options,
              std::int64_t step) const;
  Work send(const Piece& piece) const;
  View working(std::size_t slice) const;  // the weight that the update writes
  void begin_meanwhile(std::function<void()> work);

  const Rank rank_;
  const HostUpdateOptions options_;
  Host& host_;
  Device& worker_;
  std::vector<Piece> pieces_;
  std::vector<Tensor> m_, v_;
  std::vector<Tensor> weights_;  // the host's copies; empty where the weight is there
  std::vector<Tensor> kept_;     // gradients that an update behind the step reads
  std::vector<Work> moving_;
  mutable std::future<void> meanwhile_;  // an update that goes on, in a thread of its own
  bool late_ = false;                    // the device's weights lack the last update
};

// For a Trainer: its reducer's slices are updated on the host.
StepParts update_on_host(StepParts parts = {}, const HostUpdateOptions& options = {});

}  // namespace aisc
