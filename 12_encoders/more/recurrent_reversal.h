// What a sequence costs a recurrent model, on the smallest task that needs the whole of it: to say
// a sequence of symbols backwards.
#pragma once

#include <memory>
#include <vector>

#include "common/data/batches.h"
#include "common/nn/model.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"

namespace aisc {

// Who says it backwards.
enum class Reverser {
  // An LstmPair (lstm_pair.h). The writer reads a start symbol, and then the symbols that it should
  // have said.
  // Symbols are drawn independently, so these tell it how far it is and nothing of the next one.
  Recurrent,
  // An encoder of one block (GptConfig::encoder_blocks) with learnt positions, which says all
  // symbols at once: place t has to look at place n - 1 - t. With columns as many as the LSTMs have
  // it has fewer weights, 12 C^2 against their 16 C^2.
  Attention,
};

struct ReversalOptions {
  std::int64_t length = 8, symbols = 8;  // symbols are 1 .. symbols, and 0 is the start
  std::int64_t width = 32, batch = 32;
  double learning_rate = 5e-3;  // of AdamW without decay
  std::uint64_t seed = 1;       // of weights and samples
  DType dtype = DType::F32;
};

// One model that learns to reverse sequences of one length, on the CPU or without numbers.
class Reversal {
 public:
  Reversal(const Rank& rank, Reverser reverser, const ReversalOptions& options);

  // Tokens (B, n), and of a recurrent one (B, 2n), with targets (B, n); sample i of the training
  // text, and of another one that is never trained on, is a pure function of the seed and i.
  enum class Text { Training, HeldOut };
  Batch batch(Text text, std::int64_t first_sample, std::int64_t count) const;

  // One step with the next samples; returns the mean loss of a symbol before it, in nats.
  double step();
  // The share of symbols of so many held-out samples that are said right. The recurrent one is told
  // what it should have said before each.
  double accuracy(std::int64_t samples) const;
  // Of the loss of the *last* symbol that is said, the gradient with respect to the vector of input
  // t = 0 .. n - 1: its root mean square over so many held-out samples. The last symbol to be said
  // is input 0.
  std::vector<double> gradient_norms(std::int64_t samples);
  // Steps of the recurrence that a signal of input t passes through until the last symbol is said:
  // 2n - 1 - t. Of attention 1.
  std::int64_t way(std::int64_t t) const;

  std::int64_t parameter_count() const { return store_->parameter_count(); }
  const Model& model() const { return model_; }
  ParameterStore& store() { return *store_; }

 private:
  Rank rank_;
  Reverser reverser_;
  ReversalOptions options_;
  Model model_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t steps_ = 0;
};

}  // namespace aisc
