// Two recurrent layers that make one text of another: what an encoder and a decoder were before
// attention.
#pragma once

#include <string>
#include <vector>

#include "12_encoders/more/lstm.h"

namespace aisc {

// Two LSTMs (Sutskever, Vinyals and Le, "Sequence to sequence learning with neural networks", arXiv
// 1409.3215): the first reads a text and the second, which begins with the first one's last state,
// writes another. x (B, 2n, C) is the text and then what the second one reads, n vectors each; y
// (B, n, C). All that the second knows of the text has passed through one state.
class LstmPair final : public Layer {
 public:
  LstmPair(const Rank& rank, const std::string& name, std::int64_t width)
      : Layer(rank, name),
        reader_(rank, name + ".reader", width, width),
        writer_(rank, name + ".writer", width, width) {}

  // Throws Error for an odd number of vectors.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  Lstm reader_, writer_;
};

}  // namespace aisc
