// Activations of a stage that are not kept but made again, by micro-batches.
#pragma once

#include <cstdint>
#include <functional>

#include "common/core/tensor.h"

namespace aisc {

// When a stage's forward runs again, of micro-batches whose activations were not kept.
enum class Again {
  Never,      // all are kept
  OnArrival,  // when the gradient of the stage's output is there
  Early,      // before: while the rank would wait for the gradient (Huang et al., GPipe, arXiv
              // 1811.06965, section 2.3)
};

// Before the backward of a micro-batch on a stage: its activations, and the gradient of its output,
// which is returned. remake() runs forward again; it is called once, or not at all where everything
// was kept. receive() blocks until the gradient is there.
//
// A gradient passes p stages. On arrival each of them adds its forward to the way of the first
// gradient, which is (p - 1) tf longer for it than with Early.
Tensor prepare_backward(Again again, bool is_kept, const std::function<void()>& remake,
                        const std::function<Tensor()>& receive);

// Which micro-batches keep everything: as many as fit into a budget, the first to come first.
class KeptBytes {
 public:
  explicit KeptBytes(std::int64_t budget) : budget_(budget) {}

  // Whether a micro-batch's forward may keep what it makes. How much that is, the first tells.
  bool has_room() const { return budget_ > 0 && held_ + largest_ <= budget_; }
  // It has kept so much. False: it does not fit, and has to be given up at once.
  bool keep(std::int64_t bytes);
  void give_back(std::int64_t bytes) { held_ -= bytes; }

 private:
  const std::int64_t budget_;
  std::int64_t held_ = 0, largest_ = 0;
};

}  // namespace aisc
