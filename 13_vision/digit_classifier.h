// A small residual network that says which of some classes an image is of.
#pragma once

#include <vector>

#include "13_vision/residual_block.h"
#include "common/nn/model.h"

namespace aisc {

struct ClassifierConfig {
  ImageSize images{1, 28, 28};
  std::int64_t classes = 10;
  std::int64_t width = 16;  // channels behind the first layer; each block but the first doubles
  std::int64_t blocks = 3;
  ImageNorm norm = ImageNorm::SyncBatch;
  std::int64_t experts = 0;  // two of which see each place of the last feature map; 0: none
};
// Throws Error for images of less than 2 x 2, and for sizes below 1.
void require_classifier(const ClassifierConfig& config);

// Layers of a Model, in this order: filters 3 x 3 and their ReLU, max pooling of 2 x 2, so many
// residual blocks, of which all but the first halve rows and columns and double the channels, where
// there are any the experts, the mean of each channel, and a linear layer with a logit a class,
// whose weights are drawn N(0, 1 / channels). Images (N, C, H, W) become logits (N, classes); the
// loss is the cross-entropy to labels (N) I32. Parameters are bound by a ParameterStore, as a GPT's
// are.
//
// `batch` are the ranks that share a batch, for ImageNorm::SyncBatch, and that together have the
// experts; the model does not outlive them. Throws Error as require_classifier() and ExpertHead do.
Model make_digit_classifier(const Rank& rank, const ClassifierConfig& config, Communicator& batch);

// Of logits (N, V) F32 or F64 on the host and labels (N): in how many rows the largest logit is the
// label's. The first of equal ones is the largest; a row with NaN is wrong.
std::int64_t count_right(ConstView logits, ConstView labels);

}  // namespace aisc
