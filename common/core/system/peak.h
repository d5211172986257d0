// The peak of processors out of many short measurements. A machine is seldom alone: another program
// can only make a slice of time slower, so the fastest one counts, and how far the others stay
// behind tells how much the machine was disturbed.
#pragma once

#include <functional>
#include <vector>

namespace aisc {

// What all cores that are measured did together in a short time.
struct PeakSlice {
  double flops_per_second = 0;
  double seconds = 0;  // all that it took, with what had to be prepared
};

class PeakEstimate {
 public:
  void add(const PeakSlice& slice);
  double flops() const { return best_; }  // FLOP/s of the fastest slice; 0 before the first
  // The fastest has not risen, by more than a clock's noise, for 20 slices and 0.3 seconds of them.
  bool is_settled() const;
  // How far the median of the slices is below `peak`, as a share of it; 0 before the first.
  double spread_below(double peak) const;

 private:
  std::vector<double> rates_;
  double best_ = 0;
  double settling_ = 0;  // the fastest when it last rose
  int slices_since_ = 0;
  double seconds_since_ = 0;
};

// Slices until their estimate is settled, or for 0.8 seconds of them. Those of the first 50 ms, in
// which a processor raises its clock and threads start, count for nothing.
PeakEstimate settled_peak(const std::function<PeakSlice()>& slice);

}  // namespace aisc
