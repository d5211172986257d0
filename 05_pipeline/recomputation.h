// Activations of a stage that are not kept but made again, by micro-batches.
#pragma once

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

}  // namespace aisc
