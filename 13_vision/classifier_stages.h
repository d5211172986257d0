// A classifier in stages: where a network is cut whose layers are as unequal as what passes between
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "13_vision/digit_classifier.h"

namespace aisc {

struct LayerSize {
  std::string name;
  Shape input;       // of one image, without N: (C, H, W), behind the mean (C)
  double flops = 0;  // of one image, forward; backward is about twice that of each layer
};
// Of the layers of make_digit_classifier: multiplications and additions of filters, of the experts
// that a place meets and of the head; of pooling and the mean one for each element that they read.
// Norms and ReLUs are left out. Throws Error as that does.
std::vector<LayerSize> layer_sizes(const ClassifierConfig& config);

// The layers of each of `stages` stages, each one or more, in their order: of all cuts one whose
// slowest stage has the fewest FLOPs, since a pipeline is as fast as that; of several the one that
// hands over the fewest elements an image, from all stages together; of those the first in
// lexicographic order of where stages begin. Throws Error for less than one stage, and for more
// than layers.
std::vector<LayerRange> best_cut(std::span<const LayerSize> layers, int stages);

// What a stage takes of so many images: (N, C, H, W), or (N, C) behind the mean.
Shape stage_input(std::span<const LayerSize> layers, const LayerRange& stage, std::int64_t images);

// The layers of a whole model that are this stage's, as the one stage of a rank's model
// (Model::stages), with the loss where the last layer is; the others are gone.
Model stage_of(Model whole, const LayerRange& stage);

}  // namespace aisc
