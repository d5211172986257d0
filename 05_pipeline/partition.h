// Where a model is cut: layers of unequal cost over the stages of a pipeline, which is as fast as
// its slowest stage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aisc {

// The first layer of every stage, 0 for stage 0, so that the largest sum of a stage's seconds is as
// small as possible: in steady state a pipeline finishes a micro-batch in the time of its slowest
// stage. Every stage has one layer or more.
//
// seconds: of each layer, forward and backward together. Of several best cuts the one whose begins
// are the smallest in lexicographic order: early stages are short, and they are those that keep the
// most micro-batches in memory. Sums are compared as they are, added up in the order of the layers.
// Throws Error for less than one stage, for fewer layers than stages, and for a cost that is
// negative or not finite.
std::vector<std::int64_t> cut(std::span<const double> seconds, int stages);

}  // namespace aisc
