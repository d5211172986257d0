// The end of a step that writes down what it is asked for.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/core/error.h"
#include "common/train/step_end.h"

namespace aisc {

class RecordedEnd final : public StepEnd {
 public:
  // This rank counts `own`; sum(own) is the sum over the world.
  RecordedEnd(double own, std::function<double(double)> sum) : own_(own), sum_(std::move(sum)) {}
  // The other ranks have `others` in it.
  RecordedEnd(double own, double others) : RecordedEnd(own, [=](double x) { return x + others; }) {}

  void sum_over_tensor_ranks() override { calls.emplace_back("sum_over_tensor_ranks"); }
  void sum_over_data_ranks() override { calls.emplace_back("sum_over_data_ranks"); }
  void sum_tied_tables() override { calls.emplace_back("sum_tied_tables"); }
  double own_square() override {
    calls.emplace_back("own_square");
    return own_;
  }
  double sum_over_world(double own) override {
    calls.emplace_back("sum_over_world");
    summed = own;
    return sum_(own);
  }
  void require_finite(double norm) override {  // which is no call that has a place of its own
    if (!std::isfinite(norm)) fail(fmt::format("the norm of the gradients is {}", norm));
  }
  void update(double gradient_scale) override {
    calls.emplace_back("update");
    scale = gradient_scale;
  }
  void gather_weights() override { calls.emplace_back("gather_weights"); }

  std::vector<std::string> calls;
  double summed = -1, scale = -1;

 private:
  const double own_;
  const std::function<double(double)> sum_;
};

}  // namespace aisc
