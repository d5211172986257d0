// The picture of a run: training and validation loss over the steps, as SVG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aisc {

struct LossPoint {
  std::int64_t step;
  double loss;
};

// Training as a thin line, validation thick with points; axes with ticks; light or dark as the
// reader's system is. Works from a single point on; not finite points are left out.
std::string loss_svg(const std::vector<LossPoint>& training,
                     const std::vector<LossPoint>& validation, const std::string& title);

}  // namespace aisc
