// What fine-tuning adds to a pre-trained BERT: "one additional output layer" (Devlin et al., arXiv
// 1810.04805, section 4.1).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/nn/layer.h"
#include "common/train/trainer.h"

namespace aisc {

// rows (N, C), what the pooler made of N texts -> scores (N, labels) = rows W^T + b. W (labels, C),
// "classifier.weight", is drawn N(0, .02), b "classifier.bias" is 0.
class Classifier final : public Layer {
 public:
  Classifier(const Rank& rank, std::int64_t labels, std::int64_t width);

  Tensor forward(Tensor rows, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dscores, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Parameter weight_, bias_;
};

// Fills `whole`, host memory of a parameter's global shape, with what it was after pre-training.
// False: there was none of this name.
using ReadPretrained = std::function<bool(const Parameter& parameter, View whole)>;

// Names of parameters of which a rank has something, in the order of its slices.
struct Begun {
  std::vector<std::string> taken, drawn;
};
// Puts pre-trained weights into a trainer that has taken no step. Each rank fills what it updates:
// of a shard, or a part of a layer, those of the whole's elements that lie there. What pre-training
// did not know stays as it was drawn. Collective.
Begun begin_from_pretrained(Trainer& trainer, const ReadPretrained& read);

}  // namespace aisc
