// Activations that are kept in fewer bytes between forward and backward: Jain et al., "Gist:
// Efficient data encoding for deep neural network training", ISCA 2018.
//
// Between a layer's forward and its backward lie all layers above, twice. Meanwhile nobody reads
// what the layer has saved. So it is encoded behind the layer's forward and decoded in front of its
// backward, and no other layer sees a rounded number: forward, and so the loss, is what it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "common/nn/model.h"
#include "common/train/step_parts.h"

namespace aisc {

// How tensors of a floating type are kept. Masks of dropout (U8) are a bit an element in all but
// Plain.
enum class SavedAs {
  Plain,     // as they are
  Lossless,  // without their zeros, where that is less (packed_bits.h): the same gradients by bits
  Bf16,      // "delayed precision reduction": gradients are near
  F16,       // likewise; numbers beyond 65504 become infinite
  F8,        // E4M3, a scale for each 128 numbers of a row: eight_bits.h
};
// "plain", "lossless", "bf16", "f16", "f8". Throws Error for another text.
SavedAs parse_saved_as(std::string_view text);

struct EncodedActivationsOptions {
  std::int64_t least_bytes = 4096;  // smaller tensors stay as they are
  std::vector<bool> layers = {};    // by layer of the model: whether its are encoded; empty: all
};

// As they are stay: ids; what a norm keeps of a row (mean, 1 / deviation) and attention
// (log-sum-exp), since rounding it is wrong for the whole row (known by their shapes: one
// dimension, and (B, H, T) right behind a (B, T, C)); tensors that would not be smaller; those that
// somebody else holds, since their memory would stay; and all of the layer in front of the loss,
// whose backward is next. A storage that a layer saves twice is encoded once.
//
// Bytes of n numbers of k bytes between forward and backward: masks ceil(n / 8); Bf16, F16 2 n; F8
// n + 4 for each 128 numbers of a row, begun ones too; Lossless k * (those that are not 0) +
// ceil(n / 8). While a layer computes, forward or backward, all that it saves is there plain.
// On a device without numbers nobody knows zeros: there Lossless packs masks alone, and what is
// planned is the most that it can be. F8, bits and zeros are the host's work: Error on a GPU.
class EncodedActivations final : public LayerHook {
 public:
  EncodedActivations(const Rank& rank, const Model& model, SavedAs how,
                     const EncodedActivationsOptions& options = {});

  // What is encoded lies in `saved`, in the tensor's place and, of what is in two parts, behind
  // all others: so other hooks see it, to be moved to the host, say.
  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override;
  // Throws Error naming the layer if `saved` is not as after_forward left it.
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;

 private:
  enum class Form { Bits, Sparse, Short, F8 };
  // A storage of a layer, and which of its saved tensors have it.
  struct Encoded {
    std::vector<std::pair<std::size_t, Shape>> places;  // index in Saved, and the shape there
    DType dtype;                                        // that it had
    Form form;
    std::size_t second = 0;  // index of the second part: Sparse's bits, F8's scales
  };
  struct EncodedLayer {
    std::size_t saved = 0, own = 0;  // tensors in Saved, and of them the layer's own
    std::vector<Encoded> storages = {};
  };
  using Key = std::pair<int, std::size_t>;  // micro-batch and layer

  bool encodes(std::size_t layer) const;
  // Whether saved[i] may be rounded or packed at all.
  bool is_for(std::span<const Tensor> saved, std::size_t i) const;
  // The first part, and the second or an empty tensor; two empty ones where that is no less.
  std::pair<Tensor, Tensor> encode(const Tensor& x, Form form) const;
  Form form_of(const Tensor& x) const;
  Tensor decode(const Encoded& its, Tensor first, Tensor second) const;

  const Rank rank_;
  const std::size_t stays_;  // the layer in front of the loss
  const SavedAs how_;
  const EncodedActivationsOptions options_;
  std::map<Key, EncodedLayer> layers_;
};

// For a Trainer; Plain changes nothing.
StepParts encoded_activations(SavedAs how, StepParts parts,
                              const EncodedActivationsOptions& options = {});

}  // namespace aisc
