// From the encoder to the decoder: the encoder's output becomes what every decoder block looks at,
// and the decoder's own text begins. In a pipeline both pass from stage to stage.
#pragma once

#include <memory>
#include <string>

#include "common/nn/gpt.h"

namespace aisc {

// x (B, S, C), the encoder's output, becomes pass.side->value; returns the vectors (B, T, C) of the
// decoder's tokens, pass.side->tokens. Backward goes the other way: dy ends in the decoder's
// embedding, and the gradient that the decoder blocks have added up in pass.side->grad is the
// encoder's; it is taken from there.
class Bridge final : public Layer {
 public:
  // tokens (B, T) I32 -> (B, T, C).
  Bridge(const Rank& rank, std::string name, std::unique_ptr<Layer> embedding)
      : Layer(rank, std::move(name)), embedding_(std::move(embedding)) {}

  // Throws Error without a side input.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  // Throws Error where no decoder block has added to the gradient.
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return embedding_->parameters(); }

 private:
  std::unique_ptr<Layer> embedding_;
};

// What a stage of a pipeline is given by the one before it.
enum class Handover {
  Source,  // (B, S, C): the cut is inside the encoder, or before the bridge
  Both,    // (B, T + S, C): inside the decoder; of each sample the decoder's T rows, then S of the
           // encoder's output
  Target,  // (B, T, C): the head is alone
};
// Of one that begins with this block; the head alone begins with block `layers`.
Handover handover(const GptConfig& config, std::int64_t block);

// The decoder's text may be shorter in a batch than the T for which stages have room; its rows are
// then filled up with zeros.
//
// The first layer behind such a cut, of Both or Target: returns x (B, n, C) of the n decoder
// tokens, and the rest is the side input's value. Backward joins dx and the gradient that blocks
// from here on have added up.
class TakeApart final : public Layer {
 public:
  TakeApart(const Rank& rank, std::string name, std::int64_t decoder_tokens, Handover given)
      : Layer(rank, std::move(name)), decoder_tokens_(decoder_tokens), given_(given) {}
  Tensor forward(Tensor both, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dx, Saved& saved, const Pass& pass) override;

 private:
  std::int64_t decoder_tokens_;  // T
  Handover given_;
};

// The last layer before the cut: joins them. Backward takes apart what comes back: the gradient of
// x is returned, and the other one is the side input's, to which this stage's blocks add theirs.
class Join final : public Layer {
 public:
  Join(const Rank& rank, std::string name, std::int64_t decoder_tokens, Handover given)
      : Layer(rank, std::move(name)), decoder_tokens_(decoder_tokens), given_(given) {}
  // Throws Error for a decoder text of more tokens than there is room for.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dboth, Saved& saved, const Pass& pass) override;

 private:
  std::int64_t decoder_tokens_;
  Handover given_;
};

}  // namespace aisc
